"""Plan -> THE MACHINE: the only folder that writes one."""
