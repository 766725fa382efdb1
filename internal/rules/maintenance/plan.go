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

// obstaclePause is when what is in the way is looked at again if nothing has told of its end.
const obstaclePause = 5 * time.Second

// Observed is what a decision is made on: what the API server has said, in the order of the fields.
type Observed struct {
	// Machine is the one of the name (lock.Chosen), nil if there is none.
	Machine lock.Machine
	// Pods are the maintenance pods for a machine of the name, whoever made them.
	Pods []*corev1.Pod
	// Holder is the pod that the machine names as its holder, nil if there is none; HolderAsked that this was asked. The list of
	// pods may be older than the lock.
	Holder      *corev1.Pod
	HolderAsked bool
	// Provisioning are the provisioning pods of Pods, as the cache has them: they hold no disk.
	Provisioning []*corev1.Pod
	// Look is what may be in the way, nil as long as it was not asked for.
	Look *Look
	// Later is the machine as it was after all that, LaterAsked that this was asked for.
	Later      lock.Machine
	LaterAsked bool
	Now        time.Time
}

// Question is something that has to be asked before the next step.
type Question string

const (
	// NeedHolder asks for the pod that the machine names.
	NeedHolder Question = "the pod that holds the lock"
	// NeedLook asks for what may be in the way.
	NeedLook Question = "what may use the machine's disks"
	// NeedPlugged asks for the guests that one of the disks is plugged into. It takes reading every VMI of the namespace, so
	// it is asked last.
	NeedPlugged Question = "the guests that a disk is plugged into"
	// NeedPlaces asks for the claims, what fills them, and where they are. It is asked when one is not filled.
	NeedPlaces Question = "where the machine's disks are"
	// NeedLater asks for the machine once more.
	NeedLater Question = "the machine after its pods"
)

// Step is one thing to do.
type Step string

// The steps. After each of them but Rest the loop looks again at once; Provision and Unprovision are seen by what becomes of
// the provisioning pod.
const (
	Rest Step = ""
	// Lock names the pod on the machine, Open lets it run, Unlock takes both back.
	Lock   Step = "lock the machine"
	Open   Step = "open the machine"
	Unlock Step = "unlock the machine"
	// Provision makes the provisioning pod of a pod, Unprovision deletes one.
	Provision   Step = "have the disks placed where the machine fits"
	Unprovision Step = "delete the provisioning pod"
	// Lift takes the gate off the pod.
	Lift Step = "lift the pod's gate"
	// LetGo takes the finalizer off a pod that has ended.
	LetGo Step = "let the pod go"
	// Evict takes the finalizer off a pod that an administrator vouches for, and deletes it by force.
	Evict Step = "evict the pod"
	// Delete deletes a pod whose machine is being deleted.
	Delete Step = "delete the pod"
	// Forget takes away a request for an unlock that nothing is left to do for.
	Forget Step = "forget the forced unlock"
)

// Again reports whether the loop looks again at once after a step.
func (s Step) Again() bool { return s != Rest && s != Provision && s != Unprovision }

// Wait is why a pod waits.
type Wait struct {
	Pod *corev1.Pod
	Why string
	// First means that the pod is the next, so that what is in its way concerns the machine, too.
	First bool
}

// Event is something that the machine and the pod are told.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Plan is one step, and what the pods that wait are told.
type Plan struct {
	// Needs is what has to be asked first: then this is no plan.
	Needs Question
	Step  Step
	// Machine is as it is to be after Lock, Open, Unlock and Forget.
	Machine lock.Machine
	// Pod is the one that the step is about, nil if its object is gone.
	Pod *corev1.Pod
	// Claims are what the provisioning pod is to have.
	Claims []string
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
	case o.Machine == nil:
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
	_, locked := lock.Of(d.o.Machine)
	return locked
}

// write plans a write of the machine.
func (d *decision) write(step Step, change func(metav1.Object)) {
	d.Step, d.Machine = step, d.o.Machine.DeepCopyObject().(lock.Machine)
	change(d.Machine)
}

// noun is what the machine is called.
func (d *decision) noun() string { return lock.Noun(d.o.Machine) }

// decideLocked looks after the pod that the machine is locked for.
func (d *decision) decideLocked() {
	if !d.o.HolderAsked {
		d.Needs = NeedHolder
		return
	}
	l, _ := lock.Of(d.o.Machine)
	if d.o.Holder != nil && !lock.HeldBy(d.o.Machine, d.o.Holder) {
		d.o.Holder = nil // Another one of that name.
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
		d.tidy()
	}
}

// undecided reports whether there is neither a step nor a question yet.
func (d *decision) undecided() bool { return d.Step == Rest && d.Needs == "" }

// tidy lets go of pods that have ended, and deletes what is left of placing disks.
func (d *decision) tidy() {
	if d.letGo(); d.undecided() {
		d.unprovision(nil)
	}
}

// force does what an administrator has asked for. The pod's object goes first: then the pod can't come to have the lock
// again, nor be in the next one's way.
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

// decideVanished looks after a lock whose pod's object is gone. It goes only when somebody took the finalizer away past
// admission, or in the moment in which the machine was locked: then the pod has never run.
func (d *decision) decideVanished(l lock.Lock) {
	if !l.Open {
		d.write(Unlock, lock.Drop)
		return
	}
	d.After = time.Minute
	d.Event = &Event{Warning: true, Reason: "MaintenancePodLost",
		Message: fmt.Sprintf("the pod %s is gone and was not seen to end, so it may still write to the disks: make sure that it does not, and unlock the %s by force", l.Pod, d.noun())}
}

// openOrYield looks a second time, now that a start sees the lock.
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

// decideUnlocked locks the machine for the pod that is next.
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

// obstacle is what is in the pod's way. Another pod of the machine's that had the lock is, whatever became of that.
func (d *decision) obstacle(pod *corev1.Pod) string {
	return cmp.Or(d.predecessor(pod), Obstacle(d.o.Machine, pod, d.o.Look))
}

// predecessor says that another pod of the machine's has not ended.
func (d *decision) predecessor(pod *corev1.Pod) string {
	for _, other := range d.o.Pods {
		if other.UID != pod.UID && lock.MayWrite(other) {
			return fmt.Sprintf("the maintenance pod %s of the %s has not ended", other.Name, d.noun())
		}
	}
	return ""
}

// waiting are the pods that wait for the lock, in their order.
func (d *decision) waiting() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(d.o.Pods), func(p *corev1.Pod) bool {
		return !Waits(p) || d.o.Machine != nil && lock.HeldBy(d.o.Machine, p)
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

// abandon deletes pods that wait for a machine that is gone. Those that have it as an owner go as well without this.
func (d *decision) abandon() {
	if !d.undecided() {
		return
	}
	if next := Next(d.o.Pods); next != nil {
		d.Step, d.Pod = Delete, next
	}
}

// letGo lets go of a pod that has ended, unless the machine is locked for it.
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
