package presence

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// podPatience is how long the cache of pods may lag behind that of VMIs.
	podPatience = time.Second
	// askPause follows a query if the API server was unreachable, or has an object that the cache lacks.
	askPause = 2 * time.Second
)

// absent records the objects that the caches lack, and the API server's answers.
type absent struct {
	vmi      bool      // the cache lacks the VMI
	deserted bool      // the VMI does not exist
	former   bool      // its guest has left this node for another
	pod      types.UID // the launcher pod that no longer exists
	missing  types.UID // the launcher pod that the cache lacks
	next     time.Time // of the next query for it
}

// Launcher is the state of the VMI's launcher.
type Launcher struct {
	Connected bool
	Exited    bool // QEMU has ended
}

type question string

const (
	// dropVMI is no query: the VMI is not this node's, and it has no guest here.
	dropVMI question = "let go"
	theVMI  question = "VMI"
	thePod  question = "pod"
)

type decision struct {
	question question
	pod      types.UID
	after    time.Duration
	absent   absent
}

// decide returns the query for a VMI. shown means that a cache has the node's launcher pod.
func decide(known *v1.VirtualMachineInstance, a absent, node string, shown bool, l Launcher, now time.Time) decision {
	d := decision{absent: a}
	switch {
	case known == nil:
		return d
	case a.vmi && !guestMayRun(known, l):
		d.question = dropVMI
		return d
	case a.vmi && !a.deserted && !a.former:
		d.question = theVMI
		return d
	}
	uid := chosenPod(known, node)
	if uid == "" || uid == a.pod || known.IsFinal() || shown {
		d.absent.missing = ""
		return d
	}
	if a.missing != uid {
		d.absent.missing, d.absent.next = uid, now.Add(podPatience)
	}
	if d.after = max(0, d.absent.next.Sub(now)); d.after == 0 {
		d.question, d.pod = thePod, uid
	}
	return d
}

func guestMayRun(known *v1.VirtualMachineInstance, l Launcher) bool {
	return !l.Exited && (l.Connected || !known.IsFinal())
}

// chosenPod returns the UID of the pod that virt-controller chose to run the guest on this node.
func chosenPod(known *v1.VirtualMachineInstance, node string) types.UID {
	for uid, on := range known.Status.ActivePods {
		if on == node {
			return uid
		}
	}
	return ""
}
