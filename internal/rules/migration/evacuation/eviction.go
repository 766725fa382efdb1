package evacuation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/object/objectevent"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// Eviction is a request to evict a pod, with the API server's objects.
type Eviction struct {
	Pod *corev1.Pod // nil if it does not exist
	// VMI is the one that the pod names, nil if it does not exist. A user's pod can name one, too.
	VMI *v1.VirtualMachineInstance
	// VM is the VMI's, nil if it has none. It is read only if migration.HeldByDisks.
	VM      *v1.VirtualMachine
	Cluster v1.EvictionStrategy
}

// Answer is the response to an eviction.
type Answer struct {
	Allowed bool
	Mark    bool   // the VMI, before the eviction is refused
	Message string // of a refusal
}

var allowed = Answer{Allowed: true}

// Triggered is KubeVirt's text by which the descheduler recognizes an evacuation.
const Triggered = "Eviction triggered evacuation of VMI"

// Judge decides about an eviction. It protects only a pod that the VMI's status names by its UID: a guest runs in no
// other, and tenants can't write the status.
//
//	pod of the guest    None: allowed; External, LiveMigrateIfPossible: marked
//	                    LiveMigrate: marked, or refused with the reason why it can't be migrated
//	pod of the target   refused, unless the strategy is None
//	any other           allowed
//
// Budget must allow the same evictions of pods that are neither ending nor left, so that the answers with and without
// virt-api are the same.
func Judge(e Eviction) Answer {
	pod, vmi := e.Pod, e.VMI
	switch {
	case pod == nil, pod.DeletionTimestamp != nil, podstatus.Terminal(pod):
		return allowed
	case vmi == nil, vmi.IsFinal(), vmi.DeletionTimestamp != nil, launcherpod.BondOf(pod, vmi) != launcherpod.Chosen:
		return allowed
	}
	strategy := Strategy(vmi, e.Cluster)
	switch {
	case strategy == v1.EvictionStrategyNone:
		return allowed
	case pod.Name != launcherpod.CurrentName(vmi):
		// It is a migration's target, or the pod that the guest has left.
		if ms := vmi.Status.MigrationState; !migration.InFlight(vmi) || ms.TargetPod != pod.Name {
			return allowed
		}
		return Answer{Message: fmt.Sprintf("the guest of VMI %q is being migrated to this pod; it is moved on when it has arrived", name(vmi))}
	case strategy == v1.EvictionStrategyExternal:
		return refuseAndMark(vmi, "its evictionStrategy is External, and whoever looks after it has to move or stop it")
	}
	return judgeGuest(e, strategy)
}

func judgeGuest(e Eviction, strategy v1.EvictionStrategy) Answer {
	vmi := e.VMI
	err := migration.Movable(vmi)
	switch {
	case vmi.Status.Phase == v1.Scheduled:
		return refuseAndMark(vmi, "it is migrated away as soon as it runs")
	case err == nil:
		return refuseAndMark(vmi, "it is being migrated to another node")
	case len(DiskMoves(e.VM, vmi)) > 0:
		if c := condition.Find(e.VM.Status.Conditions, v1.VirtualMachineFailure); c != nil && c.Status == corev1.ConditionTrue {
			return refuseAndMark(vmi, objectevent.Fit(fmt.Sprintf("it is to be migrated to another node together with its disks, whose claims can't be made: %s", c.Message)))
		}
		return refuseAndMark(vmi, "it is being migrated to another node together with its disks")
	case strategy == v1.EvictionStrategyLiveMigrateIfPossible:
		return refuseAndMark(vmi, objectevent.Fit(fmt.Sprintf("it is being stopped, because it can't be migrated: %v", err)))
	}
	return Answer{Message: objectevent.Fit(fmt.Sprintf("VMI %q has the evictionStrategy LiveMigrate and can't be migrated: %v; stop it, or do what is needed for its migration", name(vmi), err))}
}

func refuseAndMark(vmi *v1.VirtualMachineInstance, what string) Answer {
	out := Answer{
		Mark:    vmi.Status.EvacuationNodeName != vmi.Status.NodeName,
		Message: fmt.Sprintf("%s %q: %s", Triggered, name(vmi), what),
	}
	if !out.Mark {
		out.Message = "Evacuation in progress: " + out.Message
	}
	return out
}

func name(vmi *v1.VirtualMachineInstance) string { return vmi.Namespace + "/" + vmi.Name }
