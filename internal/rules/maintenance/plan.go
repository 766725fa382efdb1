package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// obstaclePause is the interval for checking obstacles whose end causes no event.
const obstaclePause = 5 * time.Second

// Observed is read from the API server in the order of the fields.
type Observed struct {
	Machine lock.Machine  // nil for none (lock.Chosen)
	Pods    []*corev1.Pod // the maintenance pods for the name, whoever created them
	// Holder is the pod in the machine's lock, nil if it does not exist; Pods may be older than the lock.
	Holder      *corev1.Pod
	HolderAsked bool
	// Provisioning are the provisioning pods of Pods. They hold no disk, so a cache suffices.
	Provisioning []*corev1.Pod
	Look         *Look
	Later        lock.Machine // read again after the rest
	LaterAsked   bool
	Now          time.Time
}

// Question is to be answered before the next step.
type Question string

// The questions.
const (
	NeedHolder Question = "the pod that holds the lock"
	NeedLook   Question = "what may use the machine's disks"
	// NeedPlugged reads every VMI of the namespace, so it comes last.
	NeedPlugged Question = "the guests that a disk is plugged into"
	// NeedPlaces asks for the claims, their DataVolumes and topologies, if one is not filled.
	NeedPlaces Question = "where the machine's disks are"
	NeedLater  Question = "the machine after its pods"
)

// Step is an action.
type Step string

// The steps.
const (
	Rest Step = ""
	// Lock writes the pod into the machine, Open lets it run, Unlock removes both.
	Lock   Step = "lock the machine"
	Open   Step = "open the machine"
	Unlock Step = "unlock the machine"
	// Provision creates a provisioning pod, Unprovision deletes one.
	Provision   Step = "have the disks placed where the machine fits"
	Unprovision Step = "delete the provisioning pod"
	Lift        Step = "lift the pod's gate"
	LetGo       Step = "let the pod go" // which has ended, by removing its finalizer
	// Evict removes the finalizer of a pod whose end an administrator vouches for, and deletes it by force.
	Evict  Step = "evict the pod"
	Delete Step = "delete the pod"           // its machine is being deleted, or is gone
	Forget Step = "forget the forced unlock" // which has no effect any more
)

// Again reports whether the step causes another reconciliation at once. The pods of Provision and Unprovision cause
// events.
func (s Step) Again() bool { return s != Rest && s != Provision && s != Unprovision }

// Wait is why a pod waits.
type Wait struct {
	Pod   *corev1.Pod
	Why   string
	First bool // it is the next one, so its obstacle concerns the machine, too
}

// Event is about the machine and the pod.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Plan is one step, and the reasons of the waiting pods.
type Plan struct {
	Needs   Question // to answer first: nothing else may be applied then
	Step    Step
	Machine lock.Machine // the new version after Lock, Open, Unlock and Forget
	Pod     *corev1.Pod  // the step's, nil if it does not exist any more
	Claims  []string
	Event   *Event // after the step
	Waits   []Wait
	After   time.Duration
}

type decision struct {
	Plan
	o Observed
}

// Decide returns the next step.
func Decide(o Observed) Plan {
	d := &decision{o: o}
	slices.SortFunc(d.o.Pods, byAge)
	switch {
	case o.Machine == nil:
		d.letGo()
		// The machine is gone: waiting pods are deleted, as an owner reference would do.
		if next := Next(d.o.Pods); d.undecided() && next != nil {
			d.Step, d.Pod = Delete, next
		}
	case d.locked():
		d.decideLocked()
	default:
		d.decideUnlocked()
	}
	return d.Plan
}

func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

func (d *decision) locked() bool {
	_, locked := lock.Of(d.o.Machine)
	return locked
}

func (d *decision) write(step Step, change func(metav1.Object)) {
	d.Step, d.Machine = step, d.o.Machine.DeepCopyObject().(lock.Machine)
	change(d.Machine)
}

func (d *decision) noun() string { return lock.Noun(d.o.Machine) }

func (d *decision) decideLocked() {
	if !d.o.HolderAsked {
		d.Needs = NeedHolder
		return
	}
	l, _ := lock.Of(d.o.Machine)
	if d.o.Holder != nil && !lock.HeldBy(d.o.Machine, d.o.Holder) {
		d.o.Holder = nil // Another pod has that name.
	}
	switch uid, by := lock.Request(d.o.Machine); {
	case uid != "" && uid == l.UID:
		d.force(by)
	case d.o.Holder == nil:
		d.decideVanished(l)
	case lock.Ended(d.o.Holder):
		d.write(Unlock, lock.Drop)
		d.Pod = d.o.Holder
		d.Event = &Event{Reason: "MaintenanceEnded", Message: fmt.Sprintf("the pod %s has ended; the %s is no longer locked for it", l.Pod, d.noun())}
	case !l.Open:
		d.openOrYield()
	case d.o.Machine.GetDeletionTimestamp() != nil && d.o.Holder.DeletionTimestamp == nil:
		d.Step, d.Pod = Delete, d.o.Holder
	case lock.Gated(d.o.Holder):
		d.Step, d.Pod = Lift, d.o.Holder
	}
	if d.undecided() {
		d.queue(fmt.Sprintf("the %s is locked for the pod %s", d.noun(), l.Pod))
		if d.letGo(); d.undecided() {
			d.unprovision(nil)
		}
	}
}

func (d *decision) undecided() bool { return d.Step == Rest && d.Needs == "" }

// force unlocks for an administrator. The pod's object goes first, so that it can't get the lock again, nor block the
// next one.
func (d *decision) force(by string) {
	l, _ := lock.Of(d.o.Machine)
	if d.o.Holder != nil && lock.Kept(d.o.Holder) {
		d.Step, d.Pod = Evict, d.o.Holder
		return
	}
	d.write(Unlock, lock.Drop)
	d.Event = &Event{Warning: true, Reason: "MaintenanceForced",
		Message: fmt.Sprintf("%s has unlocked the %s by force, and vouches that the pod %s writes to its disks no more", by, d.noun(), l.Pod)}
}

// decideVanished handles a lock whose pod does not exist any more. Either somebody removed the finalizer
// past admission, or the pod was deleted while the machine was being locked, and has never run.
func (d *decision) decideVanished(l lock.Lock) {
	if !l.Open {
		d.write(Unlock, lock.Drop)
		return
	}
	d.After = time.Minute
	d.Event = &Event{Warning: true, Reason: "MaintenancePodLost",
		Message: fmt.Sprintf("the pod %s is gone and was not seen to end, so it may still write to the disks: make sure that it does not, and unlock the %s by force", l.Pod, d.noun())}
}

// A start sees the lock now, so the obstacles are checked again.
func (d *decision) openOrYield() {
	if d.o.Look == nil {
		d.Needs = NeedLook
		return
	}
	switch why := d.obstacle(d.o.Holder); {
	case why != "":
		d.write(Unlock, lock.Drop)
		return
	case !d.o.Look.PluggedAsked:
		d.Needs = NeedPlugged
		return
	}
	d.write(Open, lock.Open)
	d.Pod = d.o.Holder
	d.Event = &Event{Reason: "MaintenanceStarted", Message: fmt.Sprintf("the %s is locked for the pod %s", d.noun(), d.o.Holder.Name)}
}

func (d *decision) decideUnlocked() {
	if uid, _ := lock.Request(d.o.Machine); uid != "" || slices.Contains(d.o.Machine.GetFinalizers(), layout.MaintenanceFinalizer) {
		d.write(Forget, lock.Drop)
		return
	}
	if d.letGo(); !d.undecided() || d.o.Machine.GetDeletionTimestamp() != nil {
		return
	}
	waiting := d.waiting()
	if len(waiting) == 0 {
		return
	}
	if d.o.Look == nil {
		d.Needs = NeedLook
		return
	}
	next := waiting[0]
	if d.place(next) {
		return
	}
	switch why := d.obstacle(next); {
	case why != "":
		d.queue(why)
		d.After = obstaclePause
		return
	case !d.o.Look.PluggedAsked:
		d.Needs = NeedPlugged
		return
	}
	d.write(Lock, func(m metav1.Object) { lock.Take(m, next, d.o.Now) })
	d.Pod = next
}

func (d *decision) obstacle(pod *corev1.Pod) string {
	return cmp.Or(d.predecessor(pod), Obstacle(d.o.Machine, pod, d.o.Look))
}

// predecessor returns an obstacle if another pod of the machine has not ended, whatever became of its lock.
func (d *decision) predecessor(pod *corev1.Pod) string {
	for _, other := range d.o.Pods {
		if other.UID != pod.UID && lock.MayWrite(other) {
			return fmt.Sprintf("the maintenance pod %s of the %s has not ended", other.Name, d.noun())
		}
	}
	return ""
}

func (d *decision) waiting() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(d.o.Pods), func(p *corev1.Pod) bool {
		return !Waits(p) || d.o.Machine != nil && lock.HeldBy(d.o.Machine, p)
	})
}

// Waits reports whether a pod waits for the lock.
func Waits(p *corev1.Pod) bool {
	return lock.Gated(p) && lock.Kept(p) && p.DeletionTimestamp == nil && !lock.Ended(p)
}

// Next returns the pod that gets the lock next, nil for none.
func Next(pods []*corev1.Pod) *corev1.Pod {
	sorted := slices.SortedFunc(slices.Values(pods), byAge)
	if i := slices.IndexFunc(sorted, Waits); i >= 0 {
		return sorted[i]
	}
	return nil
}

func (d *decision) queue(why string) {
	for i, pod := range d.waiting() {
		if i > 0 {
			why = "pods that were created earlier come first"
		}
		d.Waits = append(d.Waits, Wait{Pod: pod, Why: why, First: i == 0})
	}
}

// letGo releases an ended pod, unless the machine is locked for it.
func (d *decision) letGo() {
	for _, pod := range d.o.Pods {
		if !lock.Kept(pod) || !lock.Ended(pod) || d.o.Machine != nil && lock.HeldBy(d.o.Machine, pod) {
			continue
		}
		switch {
		case !d.o.LaterAsked:
			d.Needs = NeedLater
			return
		case d.o.Later == nil || !lock.HeldBy(d.o.Later, pod):
			d.Step, d.Pod = LetGo, pod
			return
		}
	}
}
