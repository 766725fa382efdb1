package csi_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"drydock.dev/local/internal/csi"
	"drydock.dev/local/internal/render"
)

func TestLocks(t *testing.T) {
	var l csi.Locks
	must := func(write, read string) func() {
		t.Helper()
		unlock, err := l.Lock(write, read)
		if err != nil {
			t.Fatalf("locking %q, reading %q: %v", write, read, err)
		}
		return unlock
	}
	refused := func(write, read string) {
		t.Helper()
		if _, err := l.Lock(write, read); status.Code(err) != codes.Aborted {
			t.Errorf("locking %q, reading %q: %v, want Aborted", write, read, err)
		}
	}
	first := must("a", "source")
	second := must("b", "source") // two copies of one source are allowed
	refused("a", "")
	refused("source", "") // the source of a copy can't be deleted
	refused("c", "a")     // an unfinished volume can't be copied
	first()
	refused("source", "")
	second()
	must("source", "")()
	must("c", "a")()
}

func TestManifestNamesTheDriver(t *testing.T) {
	if render.StorageDriver != csi.Driver {
		t.Errorf("the manifest's driver is %s, the driver's name %s", render.StorageDriver, csi.Driver)
	}
}
