// Package qmptest is a model of QEMU for tests: a monitor that answers the commands that Drydock uses from a small
// model of a machine, and whose guest acts as a test requires.
//
// It owns the model. The tests named conformance must pass with the model and with a real QEMU, so that a test with the
// model also holds for QEMU. The model omits everything that none of Drydock's commands shows. Only tests may import
// the package.
package qmptest
