package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// obstaclePause is when what is in the way is looked at again if nothing has told of its end.
const obstaclePause = 5 * time.Second

// Observed is what a decision is made on: what the API server has said, in the order of the fields.
type Observed struct {
	// VM is the one of the name, nil if there is none.
	VM *v1.VirtualMachine
	// Pods are the maintenance pods for a VM of the name, whoever made them.
	Pods []*corev1.Pod
	// Holder is the pod that the VM names as its holder, nil if there is none; HolderAsked that this was asked. The list of
	// pods may be older than the lock.
	Holder      *corev1.Pod
	HolderAsked bool
	// Look is what may be in the way, nil as long as it was not asked for.
	Look *Look
	// Later is the VM as it was after all that, LaterAsked that this was asked for.
	Later      *v1.VirtualMachine
	LaterAsked bool
	Now        time.Time
}

// Question is something that has to be asked before the next step.
type Question string

const (
	// NeedHolder asks for the pod that the VM names.
	NeedHolder Question = "the pod that holds the lock"
	// NeedLook asks for what may be in the way.
	NeedLook Question = "what may use the VM's disks"
	// NeedLater asks for the VM once more.
	NeedLater Question = "the VM after its pods"
)

// Step is one thing to do.
type Step string

// The steps. After each of them but Rest the loop looks again at once.
const (
	Rest Step = ""
	// Lock names the pod on the VM, Open lets it run, Unlock takes both back.
	Lock   Step = "lock the VM"
	Open   Step = "open the VM"
	Unlock Step = "unlock the VM"
	// Lift takes the gate off the pod.
	Lift Step = "lift the pod's gate"
	// LetGo takes the finalizer off a pod that has ended.
	LetGo Step = "let the pod go"
	// Evict takes the finalizer off a pod that an administrator vouches for, and deletes it by force.
	Evict Step = "evict the pod"
	// Delete deletes a pod whose VM is being deleted.
	Delete Step = "delete the pod"
	// Forget takes away a request for an unlock that nothing is left to do for.
	Forget Step = "forget the forced unlock"
)

// Wait is why a pod waits.
type Wait struct {
	Pod *corev1.Pod
	Why string
	// First means that the pod is the next, so that what is in its way concerns the VM, too.
	First bool
}

// Event is something that the VM and the pod are told.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Plan is one step, and what the pods that wait are told.
type Plan struct {
	// Needs is what has to be asked first: then this is no plan.
	Needs Question
	Step  Step
	// VM is as it is to be after Lock, Open, Unlock and Forget.
	VM *v1.VirtualMachine
	// Pod is the one that the step is about, nil if its object is gone.
	Pod *corev1.Pod
	// Event is told when the step is done.
	Event *Event
	Waits []Wait
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

type decision struct {
	Plan
	o Observed
}

// Decide gives the next step.
func Decide(o Observed) Plan {
	d := &decision{o: o}
	slices.SortFunc(d.o.Pods, byAge)
	switch {
	case o.VM == nil:
		d.letGo()
		d.abandon()
	case d.locked():
		d.decideLocked()
	default:
		d.decideUnlocked()
	}
	return d.Plan
}

// byAge is the order in which pods get the lock.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

func (d *decision) locked() bool {
	_, locked := lock.Of(d.o.VM)
	return locked
}

// vm plans a write of the VM.
func (d *decision) vm(step Step, change func(*v1.VirtualMachine)) {
	d.Step, d.VM = step, d.o.VM.DeepCopy()
	change(d.VM)
}

// decideLocked looks after the pod that the VM is locked for.
func (d *decision) decideLocked() {
	if !d.o.HolderAsked {
		d.Needs = NeedHolder
		return
	}
	l, _ := lock.Of(d.o.VM)
	if d.o.Holder != nil && !lock.HeldBy(d.o.VM, d.o.Holder) {
		d.o.Holder = nil // Another one of that name.
	}
	switch uid, by := lock.Request(d.o.VM); {
	case uid != "" && uid == l.UID:
		d.force(by)
	case d.o.Holder == nil:
		d.decideVanished(l)
	case lock.Ended(d.o.Holder):
		d.vm(Unlock, lock.Drop)
		d.Pod = d.o.Holder
		d.Event = &Event{Reason: "MaintenanceEnded", Message: fmt.Sprintf("the pod %s has ended; the VM is no longer locked for it", l.Pod)}
	case !l.Open:
		d.openOrYield()
	case d.o.VM.DeletionTimestamp != nil && d.o.Holder.DeletionTimestamp == nil:
		d.Step, d.Pod = Delete, d.o.Holder
	case lock.Gated(d.o.Holder):
		d.Step, d.Pod = Lift, d.o.Holder
	}
	if d.Step == Rest && d.Needs == "" {
		d.queue(fmt.Sprintf("the VM is locked for the pod %s", l.Pod))
		d.letGo()
	}
}

// force does what an administrator has asked for. The pod's object goes first: then the pod can't come to have the lock
// again, nor be in the next one's way.
func (d *decision) force(by string) {
	l, _ := lock.Of(d.o.VM)
	if d.o.Holder != nil && lock.Kept(d.o.Holder) {
		d.Step, d.Pod = Evict, d.o.Holder
		return
	}
	d.vm(Unlock, lock.Drop)
	d.Event = &Event{Warning: true, Reason: "MaintenanceForced",
		Message: fmt.Sprintf("%s has unlocked the VM by force, and vouches that the pod %s writes to its disks no more", by, l.Pod)}
}

// decideVanished looks after a lock whose pod's object is gone. It goes only when somebody took the finalizer away past
// admission, or in the moment in which the VM was locked: then the pod has never run.
func (d *decision) decideVanished(l lock.Lock) {
	if !l.Open {
		d.vm(Unlock, lock.Drop)
		return
	}
	d.After = time.Minute
	d.Event = &Event{Warning: true, Reason: "MaintenancePodLost",
		Message: fmt.Sprintf("the pod %s is gone and was not seen to end, so it may still write to the VM's disks: make sure that it does not, and unlock the VM by force", l.Pod)}
}

// openOrYield looks a second time, now that a start sees the lock.
func (d *decision) openOrYield() {
	if d.o.Look == nil {
		d.Needs = NeedLook
		return
	}
	if why := d.obstacle(d.o.Holder); why != "" {
		d.vm(Unlock, lock.Drop)
		return
	}
	d.vm(Open, lock.Open)
	d.Pod = d.o.Holder
	d.Event = &Event{Reason: "MaintenanceStarted", Message: fmt.Sprintf("the VM is locked for the pod %s", d.o.Holder.Name)}
}

// decideUnlocked locks the VM for the pod that is next.
func (d *decision) decideUnlocked() {
	if uid, _ := lock.Request(d.o.VM); uid != "" || slices.Contains(d.o.VM.Finalizers, layout.MaintenanceFinalizer) {
		d.vm(Forget, lock.Drop)
		return
	}
	if d.letGo(); d.Step != Rest || d.Needs != "" || d.o.VM.DeletionTimestamp != nil {
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
	if why := d.obstacle(next); why != "" {
		d.queue(why)
		d.After = obstaclePause
		return
	}
	d.vm(Lock, func(vm *v1.VirtualMachine) { lock.Take(vm, next, d.o.Now) })
	d.Pod = next
}

// obstacle is what is in the pod's way. Another pod of the VM's that had the lock is, whatever became of that.
func (d *decision) obstacle(pod *corev1.Pod) string {
	for _, other := range d.o.Pods {
		if other.UID != pod.UID && lock.MayWrite(other) {
			return fmt.Sprintf("the maintenance pod %s of the VM has not ended", other.Name)
		}
	}
	return Obstacle(d.o.VM, pod, d.o.Look)
}

// waiting are the pods that wait for the lock, in their order.
func (d *decision) waiting() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(d.o.Pods), func(p *corev1.Pod) bool {
		return !Waits(p) || d.o.VM != nil && lock.HeldBy(d.o.VM, p)
	})
}

// Waits reports whether a pod waits for the lock.
func Waits(p *corev1.Pod) bool {
	return lock.Gated(p) && lock.Kept(p) && p.DeletionTimestamp == nil && !lock.Ended(p)
}

// Next is the pod that is to have the lock next, nil without one.
func Next(pods []*corev1.Pod) *corev1.Pod {
	sorted := slices.SortedFunc(slices.Values(pods), byAge)
	if i := slices.IndexFunc(sorted, Waits); i >= 0 {
		return sorted[i]
	}
	return nil
}

// queue says to the pods that wait why they do.
func (d *decision) queue(why string) {
	for i, pod := range d.waiting() {
		if i > 0 {
			why = "pods that were created earlier come first"
		}
		d.Waits = append(d.Waits, Wait{Pod: pod, Why: why, First: i == 0})
	}
}

// abandon deletes pods that wait for a VM that is gone. Those that have it as an owner go as well without this.
func (d *decision) abandon() {
	if d.Step != Rest || d.Needs != "" {
		return
	}
	if next := Next(d.o.Pods); next != nil {
		d.Step, d.Pod = Delete, next
	}
}

// letGo lets go of a pod that has ended, unless the VM is locked for it.
func (d *decision) letGo() {
	for _, pod := range d.o.Pods {
		if !lock.Kept(pod) || !lock.Ended(pod) || d.o.VM != nil && lock.HeldBy(d.o.VM, pod) {
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
