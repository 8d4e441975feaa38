"""The Ansible collection of packaging/ansible, as ansible-playbook, ansible-doc and ansible-galaxy see it."""
