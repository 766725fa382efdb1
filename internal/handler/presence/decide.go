package presence

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// podPatience is how long the cache of pods may lag behind that of VMIs before
	// the API server is asked for a launcher pod that it lacks.
	podPatience = time.Second
	// askPause is when the API server is asked again that was away, or knows what
	// the cache does not show.
	askPause = 2 * time.Second
)

// absent is what the caches do not show of a VMI and its launcher pod, and what
// the API server has said about it.
type absent struct {
	// vmi means that the cache does not show the VMI, deserted that it does not
	// exist.
	// former means that it exists, and that the guest has left this node for another.
	vmi, deserted, former bool
	// pod is the launcher pod that does not exist any more.
	pod types.UID
	// missing is the launcher pod that the cache does not show, and next when the
	// API server is to be asked for it.
	missing types.UID
	next    time.Time
}

// Launcher is what is known of the VMI's launcher otherwise.
type Launcher struct {
	// Connected means that virt-launcher is, Exited that QEMU has ended.
	Connected, Exited bool
}

// question is what the API server is to be asked; "" for nothing.
type question string

const (
	// letGo asks nothing: the VMI is not this node's, and no guest is left of it.
	letGo question = "let go"
	// theVMI asks whether a VMI that is not shown is gone, or has left this node.
	theVMI question = "VMI"
	// thePod asks whether a launcher pod that is not shown is gone.
	thePod question = "pod"
)

// decision is whom to ask, now, or when to decide again.
type decision struct {
	question question
	pod      types.UID
	after    time.Duration
	// absent is what is remembered of it.
	absent absent
}

// decide decides what to ask of a VMI; shown means that a cache shows the launcher pod that
// virt-controller has chosen on the node.
func decide(known *v1.VirtualMachineInstance, a absent, node string, shown bool, l Launcher, now time.Time) decision {
	d := decision{absent: a}
	switch {
	case known == nil:
		return d
	case a.vmi && !guestMayRun(known, l):
		d.question = letGo
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

// guestMayRun reports whether, as far as is known here, the VMI's guest may run.
func guestMayRun(known *v1.VirtualMachineInstance, l Launcher) bool {
	return !l.Exited && (l.Connected || !known.IsFinal())
}

// chosenPod is the UID of the pod that virt-controller has chosen to run the guest
// on this node.
func chosenPod(known *v1.VirtualMachineInstance, node string) types.UID {
	for uid, on := range known.Status.ActivePods {
		if on == node {
			return uid
		}
	}
	return ""
}
