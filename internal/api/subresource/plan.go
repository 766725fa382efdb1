package subresource

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Plan has the changes of a verb on a VirtualMachine, in this order.
type Plan struct {
	// GracePeriod is written to the running VMI if a stop is to be shorter than the VM's own. nil leaves it.
	GracePeriod *int64
	// Requests replace status.stateChangeRequests. nil leaves them, an empty list removes them.
	Requests []v1.VirtualMachineStateChangeRequest
	// RunStrategy is the VM's new run strategy, "" leaves it.
	RunStrategy v1.VirtualMachineRunStrategy
}

// apply edits the VM's spec and status. A VM with the deprecated field running keeps using it.
func (p Plan) apply(vm *v1.VirtualMachine) {
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

// Start plans to start vm. vmi is its VMI, nil for none.
func Start(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if active(vmi) {
		return Plan{}, conflict(vm, "VM is already running")
	}
	if by := vm.Status.RestoreInProgress; by != nil {
		return Plan{}, conflict(vm, "the VM is being restored by the VirtualMachineRestore %s; start it when that is complete", *by)
	}
	if _, locked := lock.Of(vm); locked {
		return Plan{}, conflict(vm, "%s", lock.Refusal(vm))
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
			return Plan{}, conflict(vm, "unable to complete request: stop/start already underway")
		}
		return Plan{Requests: after(vmi, start)}, nil
	default:
		return Plan{}, conflict(vm, "%s does not support manual start requests", strategy)
	}
}

// Stop plans to stop vm.
func Stop(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StopOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if err := validGrace(vmi, options.GracePeriod); err != nil {
		return Plan{}, err
	}
	var plan Plan
	if exists(vmi) {
		plan.GracePeriod = options.GracePeriod
	}
	switch strategy {
	case v1.RunStrategyAlways:
		// This also applies without a VMI: it stops a VM that is about to start or waits in a crash loop.
		plan.RunStrategy = v1.RunStrategyHalted
		// A requested start that has not happened must not remain for the next one.
		plan.Requests = forget(vm)
		return plan, nil
	case v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		if strategy == v1.RunStrategyRerunOnFailure && !active(vmi) && rerun(vm, vmi) {
			return takeBack(vmi), nil
		}
		if !active(vmi) && startWaits(vm) {
			return takeBack(vmi), nil
		}
		if !active(vmi) {
			return Plan{}, conflict(vm, "VM is not running")
		}
		plan.Requests = []v1.VirtualMachineStateChangeRequest{stop(vmi)}
		return plan, nil
	case v1.RunStrategyHalted:
		if !active(vmi) {
			return Plan{}, conflict(vm, "VM is not running")
		}
		if options.GracePeriod == nil {
			return Plan{}, conflict(vm, "%s only supports manual stop requests with a shorter graceperiod", strategy)
		}
		// It is already being stopped; this only shortens the time.
		return plan, nil
	default:
		return Plan{}, conflict(vm, "%s does not support manual stop requests", strategy)
	}
}

// rerun reports whether a failed VM is about to run again.
func rerun(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return underway(vm) || exists(vmi) && vmi.Status.Phase == v1.Failed
}

// startWaits reports whether a requested start has not happened, for example because it waits for the VM's disks.
func startWaits(vm *v1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r v1.VirtualMachineStateChangeRequest) bool { return r.Action == v1.StartRequest })
}

// takeBack cancels the start of a VM that is about to run, and deletes its previous VMI.
func takeBack(vmi *v1.VirtualMachineInstance) Plan {
	if exists(vmi) {
		return Plan{Requests: []v1.VirtualMachineStateChangeRequest{stop(vmi)}}
	}
	return Plan{Requests: []v1.VirtualMachineStateChangeRequest{}}
}

// Restart plans to restart vm.
func Restart(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.RestartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if strategy == v1.RunStrategyHalted || strategy == v1.RunStrategyOnce {
		return Plan{}, conflict(vm, "%s does not support manual restart requests", strategy)
	}
	if !active(vmi) {
		return Plan{}, conflict(vm, "VM is not running")
	}
	if underway(vm) {
		return Plan{}, conflict(vm, "unable to complete request: stop/start already underway")
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

// after returns a start that is preceded by the deletion of an ended VMI.
func after(vmi *v1.VirtualMachineInstance, start v1.VirtualMachineStateChangeRequest) []v1.VirtualMachineStateChangeRequest {
	if exists(vmi) {
		return []v1.VirtualMachineStateChangeRequest{stop(vmi), start}
	}
	return []v1.VirtualMachineStateChangeRequest{start}
}

func stop(vmi *v1.VirtualMachineInstance) v1.VirtualMachineStateChangeRequest {
	uid := vmi.UID
	return v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &uid}
}

func exists(vmi *v1.VirtualMachineInstance) bool {
	return vmi != nil && vmi.DeletionTimestamp == nil
}

// active reports whether there is or will be a guest that was not told to stop.
func active(vmi *v1.VirtualMachineInstance) bool { return exists(vmi) && !vmi.IsFinal() }

// forget returns an empty list if there are requests to remove, else nil.
func forget(vm *v1.VirtualMachine) []v1.VirtualMachineStateChangeRequest {
	if !underway(vm) {
		return nil
	}
	return []v1.VirtualMachineStateChangeRequest{}
}

func underway(vm *v1.VirtualMachine) bool { return len(vm.Status.StateChangeRequests) > 0 }

// validGrace refuses a negative grace period, and one longer than the VMI's own: its launcher pod would not live that
// long.
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

// conflict is the refusal of a verb in the VM's present state, with the messages that virtctl's users know.
func conflict(vm *v1.VirtualMachine, format string, args ...any) error {
	return apierrors.NewConflict(v1.Resource("virtualmachine"), vm.Name, fmt.Errorf(format, args...))
}

// ready refuses a verb on a VMI whose guest does not run.
func ready(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		return vmiConflict(vmi, "VMI is not running")
	}
	return nil
}

// Pause refuses a guest that can't be paused.
func Pause(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if vmi.Spec.LivenessProbe != nil {
		return apierrors.NewForbidden(v1.Resource("virtualmachineinstance"), vmi.Name,
			fmt.Errorf("%s", "Pausing VMIs with LivenessProbe is currently not supported"))
	}
	paused := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
	if paused != nil && paused.Status == corev1.ConditionTrue && paused.Reason != runstate.ReasonPausedIOError {
		return vmiConflict(vmi, "VMI is already paused")
	}
	return nil
}

// Unpause refuses a guest that runs. A guest that has suspended itself is woken up.
func Unpause(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	told := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	suspended := told != nil && told.Reason == runstate.ReasonSuspended
	if !suspended && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return vmiConflict(vmi, "VMI is not paused")
	}
	return nil
}

// SoftReboot refuses a guest that would not receive the request.
func SoftReboot(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return vmiConflict(vmi, "VMI is paused")
	}
	features := vmi.Spec.Domain.Features
	noACPI := features != nil && features.ACPI.Enabled != nil && !*features.ACPI.Enabled
	if noACPI && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return vmiConflict(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")
	}
	return nil
}

// Reset refuses a guest that does not run.
func Reset(vmi *v1.VirtualMachineInstance) error { return ready(vmi) }

// Agent refuses queries of a guest whose agent is not connected.
func Agent(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return vmiConflict(vmi, "VMI does not have guest agent connected")
	}
	return nil
}

// Freeze refuses a guest whose agent is not connected, with KubeVirt's status code for that.
func Freeze(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if err := Agent(vmi); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// Console refuses a guest without a serial console. Clients interpret 400 as 'not yet' and retry.
func Console(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return apierrors.NewBadRequest("No serial consoles are present.")
	}
	return connectable(vmi)
}

// VNC refuses a guest without a screen.
func VNC(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return apierrors.NewBadRequest("No graphics devices are present.")
	}
	return connectable(vmi)
}

// PortForward refuses a guest that does not run.
func PortForward(vmi *v1.VirtualMachineInstance) error { return connectable(vmi) }

func connectable(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		phase := string(vmi.Status.Phase)
		switch {
		case vmi.DeletionTimestamp != nil:
			phase = "Terminating"
		case phase == "":
			phase = string(v1.Pending)
		}
		return apierrors.NewBadRequest(fmt.Sprintf(
			"Unable to connect to VirtualMachineInstance because phase is %s instead of %s", phase, v1.Running))
	}
	return nil
}

func vmiConflict(vmi *v1.VirtualMachineInstance, sentence string) error {
	return apierrors.NewConflict(v1.Resource("virtualmachineinstance"), vmi.Name, fmt.Errorf("%s", sentence))
}
