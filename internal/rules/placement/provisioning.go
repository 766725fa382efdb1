package placement

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/datavolume"
	"drydock.dev/drydock/internal/rules/podstatus"
)

const (
	// failedPodPause is how old a provisioning pod must be that has ended before
	// its time (evicted, rejected by the kubelet) to be made again: a node that
	// rejects each of them must not be asked many times a second.
	failedPodPause = 15 * time.Second
	// nodeCheck is how often a node is looked at that the scheduler has settled on
	// while a claim is being bound. Nodes change all the time, so they are not
	// followed.
	nodeCheck = 15 * time.Second
	// dividedCheck is how often claims that are on nodes without one in common are
	// looked at again: a node that joins, or a volume that moves, causes no event here.
	dividedCheck = 30 * time.Second
)

// Observed is what a decision is made on.
type Observed struct {
	// Wanted reports whether the VMI is to start and has no launcher pod.
	Wanted bool
	// Claims are those that the VMI's volumes are on, in the order of the volumes.
	Claims []Claim
	// Pod is the provisioning pod, nil when none is known.
	Pod *corev1.Pod
	// Confirmed means that the claims, their DataVolumes and the homes of those
	// that are bound were asked of the API server itself, just now.
	Confirmed  bool
	Topologies []Topology
	Now        time.Time
}

// State is where a VMI's disks are on their way.
type State string

// The states, as the package's diagram has them.
const (
	Unwanted     State = "Unwanted"
	Missing      State = "Missing"
	Filling      State = "Filling"
	Provisioning State = "Provisioning"
	Divided      State = "Divided"
	Clear        State = "Clear"
)

// Plan is what is to be done, in this order: confirm and plan again, create or
// delete the provisioning pod.
type Plan struct {
	State State
	// Message says what is waited for, to the owner of a VM.
	Message string
	// Confirm asks the API server for what the plan rests on.
	Confirm bool
	// Create and Delete are about the provisioning pod.
	Create, Delete bool
	// After asks for another look at a later time; zero for none.
	After time.Duration
}

// Decide gives the plan for what was observed.
func Decide(o Observed) Plan {
	p := Plan{}
	p.State, p.Message = state(o)
	switch p.State {
	case Provisioning:
		provision(o, &p)
	case Clear:
		p.Delete = o.Pod != nil
		p.Confirm = len(o.Claims) > 0 && !o.Confirmed
	case Filling:
		p.Delete = o.Pod != nil && !beingScheduled(o)
	default:
		p.Delete = o.Pod != nil
	}
	if p.State == Divided {
		p.After = dividedCheck
	}
	return p
}

// state finds where the disks are.
func state(o Observed) (State, string) {
	switch {
	case !o.Wanted:
		return Unwanted, ""
	case anyOf(o.Claims, (*Claim).missing):
		return Missing, claimsMissing(o.Claims)
	case anyOf(o.Claims, (*Claim).unsettled):
		return Filling, notFilled(o.Claims)
	}
	divided := o.Confirmed && !shareNode(o.Topologies)
	switch {
	case provisions(o) && divided, allFilled(o.Claims) && divided:
		return Divided, describeApart(o.Topologies)
	case provisions(o):
		return Provisioning, provisioning(o.Claims)
	case !allFilled(o.Claims):
		return Filling, notFilled(o.Claims)
	}
	return Clear, ""
}

// provisions reports whether the provisioning pod has a purpose. Once it is there
// it stays until all that it carries is bound: the first DataVolume that goes on
// must not leave the other claims to another node.
func provisions(o Observed) bool {
	if anyOf(o.Claims, (*Claim).waits) {
		return true
	}
	return o.Pod != nil && anyOf(o.Claims, (*Claim).unserved) && !allFilled(o.Claims)
}

// provision sees to the pod.
func provision(o Observed, p *Plan) {
	switch {
	case o.Pod == nil && !o.Confirmed:
		p.Confirm = true
	case o.Pod == nil:
		p.Create = true
	case o.Pod.DeletionTimestamp != nil:
		// Its successor has the same name. With no grace to wait for, a deletion
		// that is seen was cut off half way, and nobody else ends it.
		p.Delete = true
	case podstatus.Terminal(o.Pod):
		if left := o.Pod.CreationTimestamp.Add(failedPodPause).Sub(o.Now); left > 0 {
			p.After = left
			return
		}
		p.Delete = true
	}
}

// beingScheduled reports whether the scheduler has had the pod's claims bound and gives it their node next, which takes it
// a second.
func beingScheduled(o Observed) bool {
	return o.Pod != nil && podstatus.BeingScheduled(o.Pod) && !anyOf(o.Claims, func(c *Claim) bool { return !c.bound() })
}

// MissingClaims names the claims that do not exist and that nothing is known to
// make.
func MissingClaims(claims []Claim) []string { return names(claims, (*Claim).missing) }

// Unbound names the claims that are not bound yet.
func Unbound(claims []Claim) []string {
	return names(claims, func(c *Claim) bool { return c.Claim != nil && !c.bound() })
}

// FilledByDataVolumes reports whether any of the claims is filled by a DataVolume.
func FilledByDataVolumes(claims []Claim) bool {
	return anyOf(claims, func(c *Claim) bool { return c.Source != "" })
}

func allFilled(claims []Claim) bool {
	return !anyOf(claims, func(c *Claim) bool { return !c.filled() })
}

func anyOf(claims []Claim, is func(*Claim) bool) bool {
	for i := range claims {
		if is(&claims[i]) {
			return true
		}
	}
	return false
}

func names(claims []Claim, is func(*Claim) bool) []string {
	var out []string
	for i := range claims {
		if is(&claims[i]) {
			out = append(out, claims[i].Name)
		}
	}
	return out
}

func claimsMissing(claims []Claim) string {
	return "these claims do not exist: " + strings.Join(MissingClaims(claims), ", ")
}

func provisioning(claims []Claim) string {
	return "finding a node on which the VM fits and these claims can be bound: " + strings.Join(Unbound(claims), ", ")
}

// notFilled says which DataVolumes and uploads are waited for, and what is wrong with any.
func notFilled(claims []Claim) string {
	var wrong []string
	var waiting []*cdiv1.DataVolume
	for i := range claims {
		switch c := &claims[i]; {
		case c.filled():
		case c.awaitsUpload():
			wrong = append(wrong, datavolume.Unfilled(c.Claim, nil))
		case c.DataVolume == nil:
			wrong = append(wrong, fmt.Sprintf("DataVolume %s, which fills claim %s, does not exist", c.Source, c.Name))
		default:
			waiting = append(waiting, c.DataVolume)
		}
	}
	if said := Waiting(waiting); said != "" {
		wrong = append(wrong, said)
	}
	return strings.Join(wrong, "; ")
}

// Waiting says of DataVolumes that are not filled what they wait for.
func Waiting(list []*cdiv1.DataVolume) string {
	var said, others []string
	for _, dv := range list {
		if sentence, _ := Trouble(dv); sentence != "" {
			said = append(said, sentence)
		} else {
			others = append(others, dv.Name)
		}
	}
	if len(others) > 0 {
		said = append(said, "waiting for DataVolumes to be filled: "+strings.Join(others, ", "))
	}
	return strings.Join(said, "; ")
}
