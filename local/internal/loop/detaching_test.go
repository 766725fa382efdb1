package loop

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestADeviceThatAnotherDetachesIsNoObstacle: the kernel opens no device that is being detached. It refuses to open a
// socket with the same error, which needs neither root nor a second program.
func TestADeviceThatAnotherDetachesIsNoObstacle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := (device{path: path}).free(); err != nil {
		t.Errorf("detaching it: %v", err)
	}
	if _, err := configure(path, os.Stdin, Mode{}); !taken(err) {
		t.Errorf("attaching a file to it: %v, and no other device is tried", err)
	}
}
