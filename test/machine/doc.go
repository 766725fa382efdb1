// Package machine tests whole machines: internal/rules/machine builds them from a VMI's spec, virt-launcher
// starts them in a real QEMU, and the test guest reports its hardware. It must contain only tests.
package machine
