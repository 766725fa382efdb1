package verb

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// Plan has a verb's changes of a VirtualMachine, in this order.
type Plan struct {
	GracePeriod *int64                                // for the running VMI, if shorter than the VM's own
	Requests    []v1.VirtualMachineStateChangeRequest // replace status.stateChangeRequests; nil leaves them
	RunStrategy v1.VirtualMachineRunStrategy          // the VM's new one; "" leaves it
}

// Apply edits the VM's spec and status. A VM with the deprecated field running keeps using it.
func (p Plan) Apply(vm *v1.VirtualMachine) {
	if p.Requests != nil {
		vm.Status.StateChangeRequests = p.Requests
	}
	if p.RunStrategy == "" {
		return
	}
	if vm.Spec.Running != nil {
		running := p.RunStrategy == v1.RunStrategyAlways
		vm.Spec.Running = &running
		return
	}
	strategy := p.RunStrategy
	vm.Spec.RunStrategy = &strategy
}

const recoveryRequired = "VM recovery required: %s"

// Start plans to start vm. vmi is its VMI, nil for none.
func Start(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, Conflict(vm, "%v", err)
	}
	if Active(vmi) {
		return Plan{}, Conflict(vm, "VM is already running")
	}
	if by := vm.Status.RestoreInProgress; by != nil {
		// KubeVirt's clients match the beginning of this and of recoveryRequired.
		return Plan{}, Conflict(vm, "Cannot update VM runStrategy until restore %q completes: start it then", *by)
	}
	if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineManualRecoveryRequired); c != nil && c.Status == corev1.ConditionTrue {
		return Plan{}, Conflict(vm, recoveryRequired, c.Message)
	}
	if _, locked := lock.Of(vm); locked {
		return Plan{}, Conflict(vm, "%s", lock.Refusal(vm))
	}
	start := v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	if options.Paused {
		start.Data = map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue}
	}
	switch strategy {
	case v1.RunStrategyHalted:
		// A pending request is an earlier start whose second write failed. It is replaced.
		plan := Plan{RunStrategy: v1.RunStrategyAlways, Requests: forget(vm)}
		if options.Paused {
			plan.Requests = []v1.VirtualMachineStateChangeRequest{start}
		}
		return plan, nil
	case v1.RunStrategyManual, v1.RunStrategyRerunOnFailure:
		if underway(vm) {
			return Plan{}, Conflict(vm, "unable to complete request: stop/start already underway")
		}
		requests := []v1.VirtualMachineStateChangeRequest{start}
		if Exists(vmi) {
			requests = []v1.VirtualMachineStateChangeRequest{stop(vmi), start} // the ended VMI goes first
		}
		return Plan{Requests: requests}, nil
	default:
		return Plan{}, Conflict(vm, "%s does not support manual start requests", strategy)
	}
}

// Stop plans a stop.
func Stop(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StopOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, Conflict(vm, "%v", err)
	}
	if err := validGrace(vmi, options.GracePeriod); err != nil {
		return Plan{}, err
	}
	var plan Plan
	if Exists(vmi) {
		plan.GracePeriod = options.GracePeriod
	}
	switch strategy {
	case v1.RunStrategyAlways:
		// Without a VMI, this stops a VM that is about to start or waits in a crash loop.
		plan.RunStrategy = v1.RunStrategyHalted
		// A requested start that has not happened must not remain for the next one.
		plan.Requests = forget(vm)
		return plan, nil
	case v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		if strategy == v1.RunStrategyRerunOnFailure && !Active(vmi) && rerun(vm, vmi) {
			return takeBack(vmi), nil
		}
		if !Active(vmi) && startWaits(vm) {
			return takeBack(vmi), nil
		}
		if !Active(vmi) {
			return Plan{}, Conflict(vm, "VM is not running")
		}
		plan.Requests = []v1.VirtualMachineStateChangeRequest{stop(vmi)}
		return plan, nil
	case v1.RunStrategyHalted:
		if !Active(vmi) {
			return Plan{}, Conflict(vm, "VM is not running")
		}
		if options.GracePeriod == nil {
			return Plan{}, Conflict(vm, "%s only supports manual stop requests with a shorter graceperiod", strategy)
		}
		// It is already being stopped; this only shortens the time.
		return plan, nil
	default:
		return Plan{}, Conflict(vm, "%s does not support manual stop requests", strategy)
	}
}

func rerun(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return underway(vm) || Exists(vmi) && vmi.Status.Phase == v1.Failed
}

// startWaits reports whether a requested start has not happened, for example because it waits for the VM's disks.
func startWaits(vm *v1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r v1.VirtualMachineStateChangeRequest) bool { return r.Action == v1.StartRequest })
}

// takeBack also deletes the VM's previous VMI.
func takeBack(vmi *v1.VirtualMachineInstance) Plan {
	if Exists(vmi) {
		return Plan{Requests: []v1.VirtualMachineStateChangeRequest{stop(vmi)}}
	}
	return Plan{Requests: []v1.VirtualMachineStateChangeRequest{}}
}

// Restart plans a restart.
func Restart(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.RestartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, Conflict(vm, "%v", err)
	}
	if strategy == v1.RunStrategyHalted || strategy == v1.RunStrategyOnce {
		return Plan{}, Conflict(vm, "%s does not support manual restart requests", strategy)
	}
	if !Active(vmi) {
		return Plan{}, Conflict(vm, "VM is not running")
	}
	if underway(vm) {
		return Plan{}, Conflict(vm, "unable to complete request: stop/start already underway")
	}
	if condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceVolumesChange) {
		return Plan{}, Conflict(vm, recoveryRequired, "its disks are being copied to other claims, and the copies would be incomplete: "+
			"restart it when the migration has ended, or have the template name the old claims again first")
	}
	if err := validGrace(vmi, options.GracePeriodSeconds); err != nil {
		return Plan{}, err
	}
	return Plan{
		GracePeriod: options.GracePeriodSeconds,
		Requests: []v1.VirtualMachineStateChangeRequest{
			stop(vmi), {Action: v1.StartRequest},
		},
	}, nil
}

func stop(vmi *v1.VirtualMachineInstance) v1.VirtualMachineStateChangeRequest {
	uid := vmi.UID
	return v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &uid}
}

// Exists reports whether there is a VMI that is not being deleted.
func Exists(vmi *v1.VirtualMachineInstance) bool {
	return vmi != nil && vmi.DeletionTimestamp == nil
}

// Active reports whether there is or will be a guest that was not told to stop.
func Active(vmi *v1.VirtualMachineInstance) bool { return Exists(vmi) && !vmi.IsFinal() }

// forget returns nil if there are no requests to remove.
func forget(vm *v1.VirtualMachine) []v1.VirtualMachineStateChangeRequest {
	if !underway(vm) {
		return nil
	}
	return []v1.VirtualMachineStateChangeRequest{}
}

func underway(vm *v1.VirtualMachine) bool { return len(vm.Status.StateChangeRequests) > 0 }

// validGrace refuses a grace period longer than the VMI's own: its launcher pod would not live that long.
func validGrace(vmi *v1.VirtualMachineInstance, seconds *int64) error {
	if seconds == nil {
		return nil
	}
	if *seconds < 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("grace period is %d s; it must not be negative", *seconds))
	}
	if vmi != nil && vmi.Spec.TerminationGracePeriodSeconds != nil && *seconds > *vmi.Spec.TerminationGracePeriodSeconds {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"grace period is %d s; it can only shorten the VirtualMachineInstance's own, which is %d s",
			*seconds, *vmi.Spec.TerminationGracePeriodSeconds))
	}
	return nil
}
