package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// patienceOfCaches exceeds the delay after which package presence asks the API server, and asks again.
const patienceOfCaches = 3 * time.Second

// awaitNoQEMU waits until no QEMU runs in the pod.
func (p *pod) awaitNoQEMU() {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for len(p.qemus()) > 0 {
		if time.Now().After(deadline) {
			p.t.Fatalf("QEMUs still run: %v", p.qemus())
		}
		time.Sleep(10 * time.Millisecond) // the end of a process has no event here
	}
}

// running starts a guest and its handler.
func running(t *testing.T, uid string) (*node, *pod, *handler) {
	t.Helper()
	n := newNode(t, scheduled(uid))
	p := n.newPod(n.api.vmi)
	h := n.startHandler(p)
	p.start()
	n.api.await(t, "phase Running", phase(v1.Running))
	return n, p, h
}

func ended(instance *v1.VirtualMachineInstance) bool { return instance.IsFinal() }

func TestPodDeletedByForceUnderAGuest(t *testing.T) {
	t.Parallel()
	n, p, h := running(t, "forced")
	n.api.remove(false, true)
	h.supervisor.PodGone(p.object)
	// The kubelet has not even noticed. virt-handler ends the guest, and reports the end afterwards.
	n.api.await(t, "the end", ended)
	p.awaitNoQEMU()
}

func TestPodDeletedByForceWhileVirtHandlerIsAway(t *testing.T) {
	t.Parallel()
	n, p, first := running(t, "forcedmeanwhile")
	first.stop()
	n.api.remove(false, true)
	n.startHandler() // which sees no pod
	n.api.await(t, "the end", ended)
	p.awaitNoQEMU()
}

func TestPodThatIsOnlyNotSeen(t *testing.T) {
	t.Parallel()
	n, p, h := running(t, "unseen")
	qemus := p.qemus()
	// The pod exists without its labels.
	h.supervisor.PodGone(p.object)
	time.Sleep(patienceOfCaches) // the absence of an action has no event
	if got := p.qemus(); !slices.Equal(got, qemus) || n.api.vmi.IsFinal() {
		t.Errorf("QEMU was %v and is %v, phase %s", qemus, got, n.api.vmi.Status.Phase)
	}
}

func TestVMIGoneUnderAGuest(t *testing.T) {
	t.Parallel()
	n, p, h := running(t, "deserted")
	// Somebody has taken the finalizers away.
	n.api.remove(true, false)
	h.supervisor.VMIGone(Here, n.api.vmi.UID)
	p.awaitNoQEMU()
	awaitTrue(t, "the driver of a VMI that is gone to let go", func() bool { return !h.drives("deserted") })
}

func TestVMIGoneWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	n, p, h := running(t, "desertedlater")
	qemus := p.qemus()
	n.api.setAway(true)
	h.supervisor.VMIGone(Here, n.api.vmi.UID)
	time.Sleep(patienceOfCaches) // the absence of an action has no event
	if got := p.qemus(); !slices.Equal(got, qemus) {
		t.Fatalf("a guest was ended on a cache's word: QEMU was %v and is %v", qemus, got)
	}
	n.api.remove(true, false)
	n.api.setAway(false)
	p.awaitNoQEMU()
}

func TestVMIThatHasLostItsLabelKeepsItsGuest(t *testing.T) {
	n, p, h := running(t, "unlabeled")
	qemus := p.qemus()
	n.api.update(func(vmi *v1.VirtualMachineInstance) { delete(vmi.Labels, v1.NodeNameLabel) })
	h.supervisor.VMIGone(Here, n.api.vmi.UID)
	deadline := time.Now().Add(patience)
	for h.drives("unlabeled") {
		if time.Now().After(deadline) {
			t.Fatal("the driver does not let go of a VMI that is not this node's any more")
		}
		time.Sleep(10 * time.Millisecond) // no event tells of it
	}
	if got := p.qemus(); !slices.Equal(got, qemus) {
		t.Errorf("QEMU was %v and is %v", qemus, got)
	}
}

// drives reports whether the VMI has a driver.
func (h *handler) drives(uid string) bool {
	h.supervisor.mu.Lock()
	defer h.supervisor.mu.Unlock()
	for driven := range h.supervisor.drivers {
		if string(driven) == uid {
			return true
		}
	}
	return false
}

func TestNothingIsLeftOfThePod(t *testing.T) {
	t.Parallel()
	instance := scheduled("vanished")
	instance.Status.Phase = v1.Running
	instance.DeletionTimestamp = new(metav1.Now())
	n := newNode(t, instance)
	n.api.remove(false, true)
	folder := filepath.Join(n.dir, "pod-of-vanished")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	n.startHandler()
	time.Sleep(patienceOfCaches) // the absence of an action has no event
	n.api.mu.Lock()
	if got := n.api.vmi.Status.Phase; got != v1.Running {
		t.Errorf("the end was said while the node had the pod's folder: phase %s", got)
	}
	n.api.mu.Unlock()
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	failed := n.api.await(t, "phase Failed", phase(v1.Failed))
	if failed.Status.Reason != "LauncherPodGone" {
		t.Errorf("reason %q", failed.Status.Reason)
	}
}
