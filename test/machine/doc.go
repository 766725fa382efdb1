// Package machine tests machines in full: internal/rules/machine builds them from a
// VMI's spec, virt-launcher starts them in a real QEMU, and the test guest says
// what it sees. It holds tests only.
package machine
