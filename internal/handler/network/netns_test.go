package network

import (
	"os"
	"sync"
	"testing"
)

// The process's first thread stands for the process in /proc/self, so it must never stay in a pod's namespace;
// nor may any other that runs goroutines.
func TestInsideLeavesNoThreadBehind(t *testing.T) {
	pod := newNetNS(t)
	var entering sync.WaitGroup
	for range 200 {
		entering.Go(func() {
			if err := inside(pod, func() error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	entering.Wait()
	inPod, err := pod.Stat()
	check(t, err)
	for range 200 {
		entering.Go(func() {
			for _, self := range []string{"/proc/self/ns/net", "/proc/thread-self/ns/net"} {
				if here, err := os.Stat(self); err != nil || os.SameFile(here, inPod) {
					t.Errorf("%s is the pod's after all is done (%v)", self, err)
				}
			}
		})
	}
	entering.Wait()
}
