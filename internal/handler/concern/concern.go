// Package concern defines the form of each subject that virt-handler changes in a running guest, such as its memory. Each
// has a folder below this one.
//
// A concern has four methods, which the driver calls in this order in each round:
//
//	Observe   queries QEMU, and changes nothing     -> seen
//	Decide    is pure: it calls the subject's rules -> plan
//	Report    adds facts for the VMI's status
//	Act       applies the plan, if it is its turn
//
// Only Act gets QEMU's monitor; Observe gets a Query, which refuses commands that change something. A concern may keep
// the times of its requests to the guest, because QEMU does not; a new virt-handler begins without them. It must not
// import another concern. It learns about the VMI, the pod and the guest only from the Round, and from questions that its
// owner answers without an effect (nics.Pod).
//
// At most one concern acts in a round: the first in the driver's list with something to do. The list belongs to one
// QEMU. It is used while the guest is at home on the node; concerns that prepare QEMU for a guest (ForArrivals) also take
// part while QEMU waits for one.
package concern

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/object/backoff"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

// CommandTimeout bounds the commands of one Observe or Act. QEMU's main loop may be busy with storage.
const CommandTimeout = 10 * time.Second

// Monitor is QEMU's monitor.
type Monitor interface {
	Execute(ctx context.Context, command string, args, result any) error
	ExecuteWithFile(ctx context.Context, command string, args any, file *os.File, result any) error
}

// Query is a monitor for queries only.
type Query struct{ monitor Monitor }

// QueryOf returns a monitor's queries.
func QueryOf(m Monitor) Query { return Query{m} }

func isQuery(command string) bool {
	return strings.HasPrefix(command, "query-") || command == "qom-list" || command == "qom-get"
}

// Execute sends a query. It refuses other commands.
func (q Query) Execute(ctx context.Context, command string, args, result any) error {
	if !isQuery(command) {
		return fmt.Errorf("the command %s is no question: it must be sent by Act", command)
	}
	return q.monitor.Execute(ctx, command, args, result)
}

// Round has the facts of one round for all concerns. Do not modify it.
type Round struct {
	VMI            *v1.VirtualMachineInstance
	Pod            *vmihandler.Pod // the launcher pod; nil if the node has none
	AttachmentPods []hotplug.Pod
	LauncherPod    types.UID // it has the claims that are not hotplugged
	// Images and Claims are those of the disks with which QEMU was started, by volume.
	Images map[string]launch.PreparedImage
	Claims map[string]*v1.PersistentVolumeClaimInfo
	// Resources are the wanted resources of the pod, nil if they don't matter or are unknown.
	Resources *corev1.ResourceRequirements
	// InPod has the networks that were requested for the pod, and that it has. PodVersion changes with each write of the pod.
	InPod      nichotplug.Attached
	PodVersion string
	NICs       map[string]bool // of QEMU
	RunState   string
	KVM        bool
	// Halted means that the CPUs wait for volumes and have never been started.
	Halted bool
	// CopyingDisks means that QEMU copies disks for a migration, or has copied some.
	Migrating, CopyingDisks bool
	TargetConnected         bool
	// Arrival is the guest for which QEMU waits, nil while the guest is at home on the node.
	Arrival *Arrival
	Now     time.Time
}

// Arrival is a guest that comes to a QEMU.
type Arrival struct {
	// VMI is the VMI on this node, with the claims to which its disks are copied.
	VMI *v1.VirtualMachineInstance
	// Places are those of plugged disks, by volume.
	Places map[string]machine.Slot
	// Copied has the sizes, by volume, of disks that the source copies to their claims here.
	Copied map[string]int64
}

// Reported reports whether the VMI's status shows that the guest runs. Most changes wait for that.
func (r *Round) Reported() bool { return r.VMI.Status.Phase == v1.Running }

// Next is the driver's part of a plan.
type Next struct {
	// Due means that Act has work. Otherwise After is the delay until it may have some, 0 to wait for an event.
	Due   bool
	After time.Duration
	// Problem tells the VMI's owner why the guest differs from the VMI; "" if it does not, or may need more time.
	Problem string
	// Settled means that nothing is left to do: an earlier failure of Act no longer counts.
	Settled   bool
	Unsettled bool   // a migration must wait before it sends the guest
	Refusal   string // why the guest can't be sent; "" if it can
}

// Outcome returns the driver's part of a plan.
func (n Next) Outcome() Next { return n }

// Plan is the result of a concern's Decide.
type Plan interface{ Outcome() Next }

// Concern is one subject of a running guest. Any goroutine may call HandleEvent; one calls the other methods.
type Concern[Seen any, P Plan] interface {
	// HandleEvent records QEMU's event, and reports whether a round must follow.
	HandleEvent(e qmp.Event) (news bool)
	// Observe queries QEMU if the last answer is outdated. With an error, it returns the last known state.
	Observe(ctx context.Context, q Query, r Round) (Seen, error)
	// Decide is pure. r may be newer than that of Observe.
	Decide(r Round, seen Seen) P
	Report(plan P, facts *vmihandler.Guest)
	Act(ctx context.Context, m Monitor, r Round, plan P) error
}

// Runner is a concern of any type with the results of its round.
type Runner interface {
	takesPart(r Round) bool
	handleEvent(e qmp.Event) (news bool)
	observe(ctx context.Context, m Monitor, r Round) error
	name() vmihandler.Step
	decide(r Round) Next
	report(facts *vmihandler.Guest)
	act(ctx context.Context, m Monitor, r Round) error
}

// Running is the Runner of a Concern.
type Running[Seen any, P Plan] struct {
	step        vmihandler.Step
	forArrivals bool
	concern     Concern[Seen, P]
	seen        Seen
	plan        P
}

// New returns the Runner of a concern whose action is step.
func New[Seen any, P Plan](step vmihandler.Step, c Concern[Seen, P]) *Running[Seen, P] {
	return &Running[Seen, P]{step: step, concern: c}
}

// ForArrivals makes the concern also take part while QEMU waits for a guest. It returns c.
func (c *Running[Seen, P]) ForArrivals() *Running[Seen, P] {
	c.forArrivals = true
	return c
}

// Plan returns the result of the last Decide.
func (c *Running[Seen, P]) Plan() P { return c.plan }

func (c *Running[Seen, P]) takesPart(r Round) bool { return r.Arrival == nil || c.forArrivals }

func (c *Running[Seen, P]) handleEvent(e qmp.Event) bool { return c.concern.HandleEvent(e) }

func (c *Running[Seen, P]) observe(ctx context.Context, m Monitor, r Round) (err error) {
	c.seen, err = c.concern.Observe(ctx, QueryOf(m), r)
	return err
}

func (c *Running[Seen, P]) name() vmihandler.Step { return c.step }

func (c *Running[Seen, P]) decide(r Round) Next {
	c.plan = c.concern.Decide(r, c.seen)
	return c.plan.Outcome()
}

func (c *Running[Seen, P]) report(facts *vmihandler.Guest) { c.concern.Report(c.plan, facts) }

func (c *Running[Seen, P]) act(ctx context.Context, m Monitor, r Round) error {
	return c.concern.Act(ctx, m, r, c.plan)
}

// List has a guest's concerns in the order of precedence.
type List []Runner

// HandleEvent passes QEMU's event to all concerns, and reports whether a round must follow.
func (l List) HandleEvent(e qmp.Event) (news bool) {
	for _, c := range l {
		news = c.handleEvent(e) || news
	}
	return news
}

// Observe calls each concern's Observe. If QEMU does not answer, its last answers count.
func (l List) Observe(ctx context.Context, m Monitor, r Round, log logr.Logger) {
	for _, c := range l {
		if !c.takesPart(r) {
			continue
		}
		if err := c.observe(ctx, m, r); err != nil {
			log.V(1).Info("QEMU did not answer", "reason", err.Error())
		}
	}
}

// Decided is the result of a list's Decide. Step, Problem and Refusal are those of the first concern with one.
type Decided struct {
	Step      vmihandler.Step
	After     time.Duration // 0 to wait for an event
	Problem   string
	Settled   []vmihandler.Step // of the settled concerns
	Unsettled bool
	Refusal   string
}

// Decide calls each concern's Decide.
func (l List) Decide(r Round) Decided {
	var d Decided
	for _, c := range l {
		if !c.takesPart(r) {
			continue
		}
		next := c.decide(r)
		if d.Step == "" && next.Due {
			d.Step = c.name()
		}
		if next.Settled {
			d.Settled = append(d.Settled, c.name())
		}
		d.Problem, d.Refusal = cmp.Or(d.Problem, next.Problem), cmp.Or(d.Refusal, next.Refusal)
		d.Unsettled = d.Unsettled || next.Unsettled
		d.After = backoff.Sooner(d.After, next.After)
	}
	return d
}

// Report adds the concerns' facts about a guest that is at home.
func (l List) Report(facts *vmihandler.Guest) {
	for _, c := range l {
		c.report(facts)
	}
}

// Act calls Act of the concern with the given step.
func (l List) Act(ctx context.Context, m Monitor, r Round, step vmihandler.Step) error {
	for _, c := range l {
		if c.name() == step {
			return c.act(ctx, m, r)
		}
	}
	return nil
}
