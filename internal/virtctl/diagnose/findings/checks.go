package findings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/obstacle"
)

const (
	isTrue  = "True"
	isFalse = "False"
)

// Kinds that checks look at.
const (
	vms        = "virtualmachines.kubevirt.io"
	vmis       = "virtualmachineinstances.kubevirt.io"
	migrations = "virtualmachineinstancemigrations.kubevirt.io"
	claims     = "persistentvolumeclaims"
	nodes      = "nodes"
	pods       = "pods"
)

var checks = slices.Concat(ofTheInstallation, ofMachines, ofStorage)

var ofTheInstallation = []check{
	{name: "component not ready", kinds: []string{"deployments.apps", "daemonsets.apps"}, find: componentNotReady},
	{name: "KubeVirt object not applied", kinds: []string{"kubevirts.kubevirt.io"}, find: notApplied},
	{name: "API not available", kinds: []string{"apiservices.apiregistration.k8s.io"}, runbook: "VirtAPIDown", find: apiNotAvailable},
	{name: "nobody leads", kinds: []string{"leases.coordination.k8s.io"}, runbook: "NoReadyVirtController", find: nobodyLeads},
	{name: "certificate near its end", kinds: []string{"authorities.diagnose.drydock.dev"}, runbook: "DrydockCertificateNearEnd", find: nearEnd},
	{name: "node does not answer", kinds: []string{nodes}, runbook: "DrydockNodeSilentWithGuests", find: nodeSilent},
	{name: "node without virt-handler's devices", kinds: []string{nodes}, runbook: "VirtHandlerDaemonSetRolloutFailing", find: noDevices},
	{name: "container does not start", kinds: []string{pods}, find: containerWaits},
	{name: "container restarts", kinds: []string{pods}, find: containerRestarts},
}

var ofMachines = []check{
	{name: "disk not writable", kinds: []string{vmis}, runbook: "DrydockDiskNotWritable", find: diskNotWritable},
	{name: "guest stopped", kinds: []string{vmis}, runbook: "DrydockGuestStopped", find: guestStopped},
	{name: "guest's node does not answer", kinds: []string{vmis}, runbook: "DrydockNodeSilentWithGuests", find: nodeLost},
	{name: "VM waits", kinds: []string{vms}, runbook: "VirtualMachineStuckInUnhealthyState", find: vmWaits},
	{name: "VMI waits", kinds: []string{vmis}, find: vmiWaits},
	{name: "VMI has failed", kinds: []string{vmis}, find: vmiFailed},
	{name: "node does not follow the VMI", kinds: []string{vmis}, find: notSynchronized},
	{name: "credentials not in the guest", kinds: []string{vmis}, find: credentialsFail},
	{name: "volume not in the guest", kinds: []string{vmis}, find: volumeWaits},
	{name: "migration waits", kinds: []string{migrations}, find: migrationWaits},
	{name: "migration stuck", kinds: []string{migrations}, find: migrationStuck},
	{name: "migration has failed", kinds: []string{migrations}, notice: true, find: migrationFailed},
	{name: "drain will wait", kinds: []string{vmis}, runbook: "VMCannotBeEvicted", notice: true, find: cannotBeEvicted},
	{name: "migration required", kinds: []string{vmis}, notice: true, find: migrationRequired},
	{name: "restart required", kinds: []string{vms}, notice: true, find: restartRequired},
	{name: "paused by a user", kinds: []string{vmis}, notice: true, find: pausedByUser},
	{name: "in maintenance", kinds: []string{vms}, notice: true, find: inMaintenance},
}

var ofStorage = []check{
	{name: "claim lost", kinds: []string{claims}, find: claimLost},
	{name: "DataVolume fails", kinds: []string{"datavolumes.cdi.kubevirt.io"}, find: dataVolumeFails},
	{name: "snapshot has failed", kinds: []string{"virtualmachinesnapshots.snapshot.kubevirt.io"}, find: operationFailed},
	{name: "restore has failed", kinds: []string{"virtualmachinerestores.snapshot.kubevirt.io"}, find: operationFailed},
	{name: "clone has failed", kinds: []string{"virtualmachineclones.clone.kubevirt.io"}, find: operationFailed},
	{name: "snapshot waits", kinds: []string{"virtualmachinesnapshots.snapshot.kubevirt.io"}, find: operationWaits},
	{name: "restore waits", kinds: []string{"virtualmachinerestores.snapshot.kubevirt.io"}, find: operationWaits},
	{name: "clone waits", kinds: []string{"virtualmachineclones.clone.kubevirt.io"}, find: operationWaits},
}

// pending is the phase of an object that nobody has seen yet.
const pending = "Pending"

func plural(number int, one, many string) string {
	if number == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", number, many)
}

func componentNotReady(o *Object, _ time.Time) []said {
	want, ready := o.number(1, "spec", "replicas"), o.number(0, "status", "readyReplicas")
	if o.Kind == "daemonsets.apps" {
		want, ready = o.number(0, "status", "desiredNumberScheduled"), o.number(0, "status", "numberReady")
	}
	if ready >= want {
		return nil
	}
	return says(time.Time{}, fmt.Sprintf("%d of %s ready", ready, plural(int(want), "pod is", "pods are")))
}

func notApplied(o *Object, _ time.Time) []said {
	var list []said
	for _, c := range o.conditions() {
		if c.Type == "Synchronized" && c.Status == isFalse || c.Type == "Degraded" && c.Status == isTrue || c.Type == "Available" && c.Status == isFalse {
			list = append(list, says(c.Since, c.Type+" is "+c.Status, c.Says())...)
		}
	}
	return list
}

func apiNotAvailable(o *Object, _ time.Time) []said {
	if c := o.condition("Available", isFalse); c != nil {
		return says(c.Since, c.Reason, c.Message)
	}
	return nil
}

// A lease that nobody renews any more was given back, or its holder has died. Those of kubelets are their nodes' matter.
func nobodyLeads(o *Object, now time.Time) []said {
	if o.GetNamespace() == "kube-node-lease" {
		return nil
	}
	renewed := o.at("spec", "renewTime")
	until := renewed.Add(time.Duration(o.number(15, "spec", "leaseDurationSeconds")) * time.Second)
	if renewed.IsZero() || !isSlow(until, now) {
		return nil
	}
	return says(renewed, "it is not renewed; its last holder is "+o.Text("spec", "holderIdentity"))
}

// soon is how long an authority must still be valid, or a twentieth of its whole time.
const soon = 7 * 24 * time.Hour

func nearEnd(o *Object, now time.Time) []said {
	var list []said
	for _, a := range o.List("authorities") {
		begin, end := parseTime(TextOf(a, "notBefore")), parseTime(TextOf(a, "notAfter"))
		if left := end.Sub(now); left > min(soon, end.Sub(begin)/20) {
			continue
		}
		verb := "ends"
		if end.Before(now) {
			verb = "has ended"
		}
		list = append(list, said{fmt.Sprintf("%s %s on %s", TextOf(a, "entry"), verb, end.UTC().Format(time.DateTime)), time.Time{}})
	}
	return list
}

func nodeSilent(o *Object, _ time.Time) []said {
	for _, status := range []string{isFalse, "Unknown"} {
		if c := o.condition("Ready", status); c != nil {
			return says(c.Since, "Ready is "+status, c.Reason, c.Message)
		}
	}
	return nil
}

// The label says that the node may have guests; without virt-handler the kubelet has none of its devices to give.
func noDevices(o *Object, _ time.Time) []said {
	if o.GetLabels()[v1.NodeSchedulable] != "true" || o.condition("Ready", isTrue) == nil {
		return nil
	}
	if given := o.Text("status", "allocatable", layout.ResourceTUN); given != "" && given != "0" {
		return nil
	}
	return says(time.Time{}, "it has the label "+v1.NodeSchedulable+", and no "+layout.ResourceTUN+" to give: virt-handler is not there")
}

func containers(o *Object) []map[string]any {
	return slices.Concat(o.List("status", "initContainerStatuses"), o.List("status", "containerStatuses"))
}

func containerWaits(o *Object, _ time.Time) []said {
	var list []said
	for _, c := range containers(o) {
		reason := TextOf(c, "state", "waiting", "reason")
		switch reason {
		case "", "ContainerCreating", "PodInitializing":
			continue
		}
		list = append(list, says(time.Time{}, "container "+TextOf(c, "name"), reason, TextOf(c, "state", "waiting", "message"))...)
	}
	return list
}

// lately is how old a restart may be that is worth a word.
const lately = time.Hour

func containerRestarts(o *Object, now time.Time) []said {
	var list []said
	for _, c := range containers(o) {
		ended := parseTime(TextOf(c, "lastState", "terminated", "finishedAt"))
		if ended.IsZero() || now.Sub(ended) > lately {
			continue
		}
		count, _ := c["restartCount"].(int64)
		list = append(list, says(ended, fmt.Sprintf("container %s has been restarted (%s)", TextOf(c, "name"), plural(int(count), "time", "times")),
			TextOf(c, "lastState", "terminated", "reason"), TextOf(c, "lastState", "terminated", "message"))...)
	}
	return list
}

const (
	ioError      = "PausedIOError"
	userPause    = "PausedByUser"
	unknownState = "UnknownRunState"
)

func diskNotWritable(o *Object, _ time.Time) []said {
	if c := o.condition("Paused", isTrue); c != nil && c.Reason == ioError {
		return says(c.Since, "QEMU has stopped the guest", c.Message)
	}
	return nil
}

func guestStopped(o *Object, _ time.Time) []said {
	if c := o.condition("Paused", isTrue); c != nil && c.Reason != ioError && c.Reason != userPause {
		return says(c.Since, c.Reason, c.Message)
	}
	if c := o.condition("Ready", isFalse); c != nil && c.Reason == unknownState {
		return says(c.Since, c.Reason, c.Message)
	}
	return nil
}

func pausedByUser(o *Object, _ time.Time) []said {
	if c := o.condition("Paused", isTrue); c != nil && c.Reason == userPause {
		return says(c.Since, c.Says())
	}
	return nil
}

func nodeLost(o *Object, _ time.Time) []said {
	if c := o.condition("Ready", isFalse); c != nil && c.Reason == "NodeLost" {
		return says(c.Since, c.Message)
	}
	if c := o.condition("Ready", "Unknown"); c != nil {
		return says(c.Since, c.Says())
	}
	return nil
}

// A VM in one of these statuses is as its owner wants it.
var settled = []string{"", "Running", "Paused", "Migrating", "Stopped", "Maintenance"}

// A VM passes these on its way.
var passing = []string{"Provisioning", "Starting", "Stopping", "Terminating", "WaitingForVolumeBinding", "WaitingForReceiver"}

func vmWaits(o *Object, now time.Time) []said {
	status, conditions := o.Text("status", "printableStatus"), o.conditions()
	why := obstacle.Of(conditions)
	if slices.Contains(settled, status) && (o.condition("Failure", isTrue) == nil || status == "Running") {
		return nil
	}
	since := o.GetCreationTimestamp().Time
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		since = deleted.Time
	}
	text := ""
	if why != nil {
		text = why.Says()
		if !why.Since.IsZero() {
			since = why.Since
		}
	}
	if slices.Contains(passing, status) && !isSlow(since, now) {
		return nil
	}
	if status == "Terminating" {
		text = obstacle.Sentence("it has the finalizers "+strings.Join(o.GetFinalizers(), ", "), text)
	}
	return says(since, status, text)
}

func isOwned(o *Object) bool {
	return slices.ContainsFunc(o.List("metadata", "ownerReferences"), func(owner map[string]any) bool { return TextOf(owner, "kind") == "VirtualMachine" })
}

// A VM has its VMI's conditions, so that only a VMI without one speaks for itself.
func vmiWaits(o *Object, now time.Time) []said {
	phase := o.Text("status", "phase")
	if isOwned(o) || slices.Contains([]string{"Running", "Succeeded", "Failed"}, phase) {
		return nil
	}
	why, since, text := obstacle.Of(o.conditions()), o.GetCreationTimestamp().Time, ""
	if why != nil {
		text = why.Says()
	}
	if !isSlow(since, now) {
		return nil
	}
	return says(since, "it is "+cmp.Or(phase, pending), text)
}

func vmiFailed(o *Object, _ time.Time) []said {
	if o.Text("status", "phase") != "Failed" {
		return nil
	}
	text := ""
	if c := o.condition("Ready", isFalse); c != nil {
		text = c.Message
	}
	return says(phaseSince(o), o.Text("status", "reason"), text)
}

func phaseSince(o *Object) time.Time {
	phase := o.Text("status", "phase")
	for _, t := range o.List("status", "phaseTransitionTimestamps") {
		if TextOf(t, "phase") == phase {
			return parseTime(TextOf(t, "phaseTransitionTimestamp"))
		}
	}
	return o.GetCreationTimestamp().Time
}

func notSynchronized(o *Object, _ time.Time) []said {
	if c := o.condition("Synchronized", isFalse); c != nil && o.Text("status", "phase") == "Running" {
		return says(c.Since, c.Reason, c.Message)
	}
	return nil
}

func credentialsFail(o *Object, _ time.Time) []said {
	if c := o.condition("AccessCredentialsSynchronized", isFalse); c != nil {
		return says(c.Since, c.Says())
	}
	return nil
}

func volumeWaits(o *Object, now time.Time) []said {
	if o.Text("status", "phase") != "Running" {
		return nil
	}
	var list []said
	for _, v := range o.List("status", "volumeStatus") {
		phase, message := TextOf(v, "phase"), TextOf(v, "message")
		if _, plugged := v["hotplugVolume"]; !plugged || phase == "Ready" || message == "" || !isSlow(o.GetCreationTimestamp().Time, now) {
			continue
		}
		list = append(list, says(time.Time{}, fmt.Sprintf("volume %s is %s", TextOf(v, "name"), cmp.Or(phase, pending)), message)...)
	}
	return list
}

func isOver(o *Object) bool {
	phase := o.Text("status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}

func migrationWaits(o *Object, now time.Time) []said {
	c := o.condition(layout.MigrationWaiting, isTrue)
	if c == nil || isOver(o) || !isSlow(o.GetCreationTimestamp().Time, now) {
		return nil
	}
	return says(c.Since, "of VMI "+o.Text("spec", "vmiName"), c.Says())
}

// A migration may send memory for as long as its limits allow; before that, a condition names its obstacle.
func migrationStuck(o *Object, now time.Time) []said {
	phase, since := cmp.Or(o.Text("status", "phase"), pending), phaseSince(o)
	if isOver(o) || phase == "Running" || o.condition(layout.MigrationWaiting, isTrue) != nil || !isSlow(since, now) {
		return nil
	}
	return says(since, fmt.Sprintf("of VMI %s", o.Text("spec", "vmiName")), "it is still "+phase)
}

func migrationFailed(o *Object, now time.Time) []said {
	since := phaseSince(o)
	if o.Text("status", "phase") != "Failed" || now.Sub(since) > 24*time.Hour {
		return nil
	}
	return says(since, "of VMI "+o.Text("spec", "vmiName"), o.Text("status", "migrationState", "failureReason"))
}

func cannotBeEvicted(o *Object, _ time.Time) []said {
	c := o.condition("LiveMigratable", isFalse)
	if c == nil || o.Text("spec", "evictionStrategy") != "LiveMigrate" || o.Text("status", "phase") != "Running" {
		return nil
	}
	return says(c.Since, "its evictionStrategy is LiveMigrate, and it can't be migrated", c.Says())
}

func migrationRequired(o *Object, _ time.Time) []said {
	if c := o.condition("MigrationRequired", isTrue); c != nil {
		return says(c.Since, c.Says())
	}
	return nil
}

func restartRequired(o *Object, _ time.Time) []said {
	if c := o.condition("RestartRequired", isTrue); c != nil {
		return says(c.Since, c.Says())
	}
	return nil
}

func inMaintenance(o *Object, _ time.Time) []said {
	if o.Text("status", "printableStatus") != "Maintenance" {
		return nil
	}
	return says(time.Time{}, "its disks are locked for the pod "+o.GetLabels()[layout.MaintenanceLabel])
}

func claimLost(o *Object, _ time.Time) []said {
	if o.Text("status", "phase") == "Lost" {
		return says(time.Time{}, "its volume "+o.Text("spec", "volumeName")+" is gone")
	}
	return nil
}

func dataVolumeFails(o *Object, _ time.Time) []said {
	phase := o.Text("status", "phase")
	if phase == "Succeeded" {
		return nil
	}
	for _, kind := range []string{"Running", "Bound", "Ready"} {
		c := o.condition(kind, isFalse)
		if c != nil && c.Message != "" && !isOrdinary(c) {
			return says(c.Since, cmp.Or(phase, pending), c.Reason, c.Message)
		}
	}
	if phase == "Failed" {
		return says(time.Time{}, phase)
	}
	return nil
}

// isOrdinary reports whether a DataVolume's condition says only that it has not come so far.
func isOrdinary(c *obstacle.Condition) bool {
	return slices.Contains([]string{"", "Pending", "NotFound", "WaitForFirstConsumer", "Completed", "TransferRunning", "Bound"}, c.Reason)
}

func operationFailed(o *Object, _ time.Time) []said {
	if c := o.condition("Failure", isTrue); c != nil {
		return says(c.Since, c.Reason, c.Message)
	}
	if o.Text("status", "phase") != "Failed" {
		return nil
	}
	text := o.Text("status", "error", "message")
	if c := o.condition("Ready", isFalse); c != nil && text == "" {
		text = c.Message
	}
	return says(time.Time{}, text)
}

func operationWaits(o *Object, now time.Time) []said {
	complete, _, _ := unstructured.NestedBool(o.Object, "status", "complete")
	if complete || isOver(o) || o.condition("Failure", isTrue) != nil || !isSlow(o.GetCreationTimestamp().Time, now) {
		return nil
	}
	for _, status := range []string{isFalse, isTrue} {
		if c := o.condition("Progressing", status); c != nil {
			return says(c.Since, c.Reason, c.Message)
		}
	}
	return says(o.GetCreationTimestamp().Time, "virt-controller has not begun")
}
