"""The running Linux machine: sysfs, devices, programs, files. The only package that touches it."""
