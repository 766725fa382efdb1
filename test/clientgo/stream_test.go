package clientgo

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

func TestAConsoleThatNobodyHas(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	options := &kvcorev1.SerialConsoleOptions{ConnectionTimeout: 5 * time.Second}
	if _, err := virt.VirtualMachineInstance(namespace).SerialConsole("nobody", options); err == nil {
		t.Error("the console of a VMI that does not exist could be opened")
	}
}

func openScreen(t *testing.T, namespace, name string) net.Conn {
	t.Helper()
	stream, err := virt.VirtualMachineInstance(namespace).VNC(name, false)
	if err != nil {
		t.Fatalf("opening the screen of VMI %s: %v", name, err)
	}
	conn := stream.AsConn()
	closeWith(t, conn)
	return conn
}

// RFB exchanges versions, then security types.
func handshake(conn net.Conn) error {
	const version = "RFB 003.008\n"
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	greeting := make([]byte, len(version))
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return fmt.Errorf("reading the greeting: %w", err)
	}
	if string(greeting) != version {
		return fmt.Errorf("the greeting is %q, not %q", greeting, version)
	}
	if _, err := io.WriteString(conn, version); err != nil {
		return fmt.Errorf("answering the greeting: %w", err)
	}
	count := make([]byte, 1)
	if _, err := io.ReadFull(conn, count); err != nil {
		return fmt.Errorf("reading the security types: %w", err)
	}
	if count[0] == 0 {
		return fmt.Errorf("the server offers no security type")
	}
	return nil
}

// echo sends text to the guest's echo service and reads it back, in one piece and in a larger one that needs many
// messages.
func echo(t *testing.T, stream kvcorev1.StreamInterface, text string) {
	t.Helper()
	conn := stream.AsConn()
	closeWith(t, conn)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatalf("setting a deadline: %v", err)
	}
	large := make([]byte, 256*1024)
	for i := range large {
		large[i] = byte(i % 251)
	}
	for _, message := range [][]byte{[]byte(text), large} {
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(message)
			sent <- err
		}()
		answer := make([]byte, len(message))
		if _, err := io.ReadFull(conn, answer); err != nil {
			t.Fatalf("reading the echo of %d bytes: %v", len(message), err)
		}
		if err := <-sent; err != nil {
			t.Fatalf("sending %d bytes: %v", len(message), err)
		}
		if string(answer) != string(message) {
			t.Fatalf("the echo of %d bytes differs", len(message))
		}
	}
}
