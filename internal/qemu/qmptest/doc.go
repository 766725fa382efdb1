// Package qmptest has a QEMU for tests that needs no QEMU: a monitor that answers the
// commands that Drydock uses from a small model of a machine, and does to its guest what a
// test says.
//
// It owns the model and Conformance, the suite that the model and a real QEMU have to pass
// alike: what a test learns from the model is then true of QEMU. The model leaves out what
// no command of Drydock's shows. Only tests may import the package.
package qmptest
