"""Part of UCX's C interface that the channel uses, for cffi's ABI mode, which needs no compiler.

Source: ucp.h, ucp_def.h and ucs/type/status.h of UCX 1.20. Structures only grow at their end, and UCX ignores fields
that are not set in `field_mask`. `rest` is room for the unused fields, and for those of later versions. A
`ucs_status_ptr_t` is the address of a request, 0 or a negative status: as an integer, Python compares it without a
conversion.
"""

CDEF = """
typedef int8_t ucs_status_t;
typedef intptr_t ucs_status_ptr_t, ucp_tag_message_h;
typedef void *ucp_context_h, *ucp_worker_h, *ucp_ep_h, *ucp_config_t,
    *ucp_mem_h, *ucp_rkey_h, *ucp_address_t;
typedef uint64_t ucp_tag_t;

typedef struct {
    uint64_t field_mask, features;
    char rest[512];
} ucp_params_t;

typedef struct {
    uint64_t field_mask;
    int thread_mode;
    char rest[512];
} ucp_worker_params_t;

typedef struct {
    uint64_t field_mask;
    const void *address;
    int err_mode;
    void (*err_cb)(void *arg, ucp_ep_h ep, ucs_status_t status);
    char rest[512];
} ucp_ep_params_t;

typedef struct {
    uint32_t op_attr_mask, flags;
    void *request, *callback;
    uint64_t datatype;
    char rest[128];
} ucp_request_param_t;

typedef struct {
    ucp_tag_t sender_tag;
    size_t length;
} ucp_tag_recv_info_t;

typedef struct {
    void *buffer;
    size_t length;
} ucp_dt_iov_t;

typedef struct {
    uint64_t field_mask;
    void *address;
    size_t length;
    char rest[256];
} ucp_mem_map_params_t;

typedef struct {
    const char *transport_name, *device_name;
} ucp_transport_entry_t;

typedef struct {
    uint64_t field_mask;
    char name[32], local_sockaddr[128], remote_sockaddr[128];
    ucp_transport_entry_t *entries;
    unsigned num_entries;
    size_t entry_size;
    char rest[128];
} ucp_ep_attr_t;

void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
ucs_status_t ucp_config_read(const char *env_prefix, const char *filename, ucp_config_t *config);
ucs_status_t ucp_config_modify(ucp_config_t config, const char *name, const char *value);
void ucp_config_release(ucp_config_t config);
ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params, ucp_config_t config,
                              ucp_context_h *context);
void ucp_cleanup(ucp_context_h context);

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params, ucp_worker_h *worker);
void ucp_worker_destroy(ucp_worker_h worker);
ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t *address, size_t *length);
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t address);
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int *fd);
ucs_status_t ucp_worker_arm(ucp_worker_h worker);
unsigned ucp_worker_progress(ucp_worker_h worker);

ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep);
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param);
ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t *param);
ucs_status_t ucp_ep_query(ucp_ep_h ep, ucp_ep_attr_t *attr);

ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t *param);
ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag, ucp_tag_t tag_mask,
                                  const ucp_request_param_t *param);
ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h worker, ucp_tag_t tag, ucp_tag_t tag_mask, int remove,
                                   ucp_tag_recv_info_t *info);
ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_message_h message,
                                      const ucp_request_param_t *param);
ucs_status_t ucp_request_check_status(ucs_status_ptr_t request);
void ucp_request_cancel(ucp_worker_h worker, ucs_status_ptr_t request);
void ucp_request_free(ucs_status_ptr_t request);

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params, ucp_mem_h *memh);
ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);
ucs_status_t ucp_rkey_pack(ucp_context_h context, ucp_mem_h memh, void **rkey_buffer, size_t *size);
void ucp_rkey_buffer_release(void *rkey_buffer);
ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void *rkey_buffer, ucp_rkey_h *rkey);
void ucp_rkey_destroy(ucp_rkey_h rkey);
ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void *buffer, size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param);
ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void *buffer, size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                             const ucp_request_param_t *param);

const char *ucs_status_string(ucs_status_t status);
"""

MAJOR = 1  # major version of the declared interface: other major versions have other structures
FEATURE_TAG, FEATURE_RMA, FEATURE_WAKEUP = 1 << 0, 1 << 1, 1 << 4
PARAM_FEATURES = 1 << 0
WORKER_THREAD_MODE = 1 << 0
THREAD_MODE_SERIALIZED = 1
EP_REMOTE_ADDRESS, EP_ERR_MODE, EP_ERR_HANDLER = 1 << 0, 1 << 1, 1 << 2
ERR_MODE_NONE, ERR_MODE_PEER = 0, 1
EP_CLOSE_FORCE = 1 << 0
EP_ATTR_TRANSPORTS = 1 << 3
OP_DATATYPE, OP_FLAGS = 1 << 3, 1 << 4
DATATYPE_IOV = 2
MEM_ADDRESS, MEM_LENGTH = 1 << 0, 1 << 1
OK, INPROGRESS = 0, 1
ERR_BUSY = -15
