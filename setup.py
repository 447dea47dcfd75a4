"""What a wheel holds: the packages of dlobd/, and four folders of a checkout's top as data of `dlobd._shipped`."""

from setuptools import find_packages, setup

SHIPPED = {
    "dlobd._shipped.data.mnist": "data/mnist",
    "dlobd._shipped.jobs": "jobs",
    "dlobd._shipped.requirements": "requirements",
    "dlobd._shipped.yarn": "yarn",
}

setup(packages=[*find_packages(include=["dlobd", "dlobd.*"]), *SHIPPED], package_dir=SHIPPED)
