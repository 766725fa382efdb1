package qmptest

import (
	"errors"
	"io"
	"net"
	"testing"
)

// A server that ends with its test waits for its connections. One that is accepted at the same moment was not closed, and
// the test never ended.
func TestAMigrationThatComesAfterQEMUsEndIsClosed(t *testing.T) {
	qemu := NewIncoming(t)
	qemu.Exit()
	ours, theirs := net.Pipe()
	qemu.serving.Go(func() { qemu.receive(theirs) })
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("reading from the connection: %v", err)
	}
}
