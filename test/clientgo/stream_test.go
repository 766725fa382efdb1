package clientgo

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"
)

func TestConsoles(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "console"
	vmi := createVMI(t, namespace, name)
	guest := openConsole(t, namespace, name)
	hostname, uuid := guest.identity()
	if hostname != name {
		t.Errorf("the guest calls itself %s, not %s", hostname, name)
	}
	if want := string(vmi.Spec.Domain.Firmware.UUID); uuid != want {
		t.Errorf("the guest sees the UUID %s, its spec says %s", uuid, want)
	}
	guest.login()
	if user := guest.run("id -un"); user != "guest" {
		t.Errorf("the guest says that %s is logged in", user)
	}

	// A second console shares the session; the first one stays open.
	second := openConsole(t, namespace, name)
	second.login()
	if answer := second.run("echo two consoles"); answer != "two consoles" {
		t.Errorf("the second console says %q", answer)
	}
	if answer := guest.run("echo first again"); answer != "first again" {
		t.Errorf("the first console says %q", answer)
	}
}

func TestAConsoleThatNobodyHas(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	options := &kvcorev1.SerialConsoleOptions{ConnectionTimeout: 5 * time.Second}
	if _, err := virt.VirtualMachineInstance(namespace).SerialConsole("nobody", options); err == nil {
		t.Error("the console of a VMI that does not exist could be opened")
	}
}

func TestScreens(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "screen"
	createVMI(t, namespace, name)
	// Two viewers at a time: both are greeted, and the first is not thrown out.
	first, second := openScreen(t, namespace, name), openScreen(t, namespace, name)
	for i, viewer := range []net.Conn{first, second} {
		if err := handshake(viewer); err != nil {
			t.Errorf("viewer %d: %v", i+1, err)
		}
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

// handshake does RFB's first two exchanges: versions, then security types.
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

func TestPortForward(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "ports"
	createVMI(t, namespace, name)
	openConsole(t, namespace, name).login()
	vmi, err := virt.VirtualMachineInstance(namespace).PortForward(name, 7777, "tcp")
	if err != nil {
		t.Fatalf("forwarding the echo port of the VMI: %v", err)
	}
	echo(t, vmi, "through the VMI")
	if _, err := virt.VirtualMachineInstance(namespace).PortForward(name, 7777, "sctp"); err == nil {
		t.Error("a port of an unknown protocol was forwarded")
	}
}

// TestPortForwardOfAVM uses the route that is called by the VM's name.
func TestPortForwardOfAVM(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	const name = "ports"
	createVM(t, namespace, name, "Always")
	awaitVMI(t, namespace, name, "run", runs)
	openConsole(t, namespace, name).login()
	vm, err := virt.VirtualMachine(namespace).PortForward(name, 7777, "tcp")
	if err != nil {
		t.Fatalf("forwarding the echo port of the VM: %v", err)
	}
	echo(t, vm, "through the VM")
}

// echo says something to the guest's echo service and hears it back, in one
// piece and in a larger one that takes many messages.
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
