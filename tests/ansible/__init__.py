"""Tests of the Ansible collection in packaging/ansible with ansible-playbook, ansible-doc and ansible-galaxy."""
