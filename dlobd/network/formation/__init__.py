"""How ranks find each other, without mpirun and without ssh: by an address book in the driver."""
