package driver

import (
	"context"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/handler/vmi"
	"drydock.dev/drydock/internal/rules/launcherpod"
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
// the API server has said about it. A cache shows this node's objects by labels,
// which may be taken away: that a guest is to end for the want of its VMI or pod,
// only the API server says.
type absent struct {
	// vmi means that the cache does not show the VMI, deserted that it does not
	// exist.
	vmi, deserted bool
	// pod is the launcher pod that does not exist any more.
	pod types.UID
	// missing is the launcher pod that the cache does not show, and next when the
	// API server is to be asked for it.
	missing types.UID
	next    time.Time
}

// askForAbsent asks the API server for what the caches do not show. It returns
// when to ask again, 0 for not at all, and with hold that nothing may be done
// before that. See decision 211.
func (d *Driver) askForAbsent(ctx context.Context) (after time.Duration, hold bool) {
	d.mu.Lock()
	if d.absent.vmi && !d.guestMayRun() {
		d.vmi = nil
	}
	known, absent := d.vmi, d.absent
	d.mu.Unlock()
	switch {
	case known == nil:
		return 0, false
	case absent.vmi && !absent.deserted:
		after = d.askForVMI(ctx, known)
		return after, after > 0
	}
	return d.askForPod(ctx), false
}

// guestMayRun reports whether, as far as is known here, the VMI's guest may run.
// The caller holds d.mu.
func (d *Driver) guestMayRun() bool {
	if d.vmi == nil || d.exit != nil {
		return false
	}
	return d.link != nil || !d.vmi.IsFinal()
}

// askForVMI finds out whether a VMI that is not shown any more is gone, or has
// left this node.
func (d *Driver) askForVMI(ctx context.Context, known *v1.VirtualMachineInstance) time.Duration {
	stored, err := d.env.Cluster.VMI(ctx, known.Namespace, known.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.absent.vmi:
		return 0 // it was shown again meanwhile
	case apierrors.IsNotFound(err), err == nil && stored.UID != d.uid:
		d.log.Info("the VMI does not exist any more")
		d.absent.deserted = true
	case err != nil:
		d.log.Info("asking for a VMI that is not seen any more", "reason", err.Error())
		return askPause
	default:
		d.vmi = nil
	}
	return 0
}

// askForPod finds out whether a launcher pod that is not shown is gone.
func (d *Driver) askForPod(ctx context.Context) time.Duration {
	d.mu.Lock()
	known := d.vmi
	uid, left := d.missingPod()
	d.mu.Unlock()
	if uid == "" || left > 0 {
		return left
	}
	found, err := d.env.Cluster.PodExists(ctx, known.Namespace, launcherpod.Name(known), uid)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.absent.next = d.env.Now().Add(askPause)
	switch {
	case err != nil:
		d.log.Info("asking for a launcher pod that is not seen", "pod", uid, "reason", err.Error())
	case !found:
		d.log.Info("the launcher pod does not exist any more", "pod", uid)
		d.absent.pod = uid
		return 0
	}
	return askPause
}

// missingPod is the launcher pod that the cache does not show, "" for none, and
// how long to wait before the API server is asked for it. The caller holds d.mu.
func (d *Driver) missingPod() (types.UID, time.Duration) {
	if d.vmi == nil {
		return "", 0
	}
	uid := d.chosenPod()
	if uid == "" || uid == d.absent.pod || d.vmi.IsFinal() || launcherPod(d.vmi, d.pods) != nil {
		d.absent.missing = ""
		return "", 0
	}
	now := d.env.Now()
	if d.absent.missing != uid {
		d.absent.missing, d.absent.next = uid, now.Add(podPatience)
	}
	return uid, max(0, d.absent.next.Sub(now))
}

// chosenPod is the UID of the pod that virt-controller has chosen to run the guest
// on this node. The caller holds d.mu.
func (d *Driver) chosenPod() types.UID {
	for uid, node := range d.vmi.Status.ActivePods {
		if node == d.env.Node {
			return uid
		}
	}
	return ""
}

// pod is what is known of the launcher pod. The caller holds d.mu.
func (d *Driver) pod() *vmi.Pod {
	if shown := launcherPod(d.vmi, d.pods); shown != nil || d.vmi == nil || d.absent.pod == "" {
		return podOf(shown)
	}
	_, err := os.Lstat(filepath.Join(d.env.Pods, string(d.absent.pod)))
	return &vmi.Pod{UID: d.absent.pod, Gone: true, Remains: !os.IsNotExist(err)}
}
