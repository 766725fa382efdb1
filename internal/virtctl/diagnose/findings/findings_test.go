package findings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func object(t *testing.T, kind, text string) Object {
	t.Helper()
	o := Object{Kind: kind, Unstructured: &unstructured.Unstructured{}}
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(encoded, &o.Object) // it keeps integers
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// named returns an object that was created at eleven, with more fields.
func named(t *testing.T, kind, fields string) Object {
	t.Helper()
	return object(t, kind, "metadata: {name: web, namespace: lab, uid: u, creationTimestamp: '2026-11-22T11:00:00Z'}\n"+fields)
}

const justNow = "metadata: {name: web, namespace: lab, creationTimestamp: '2026-11-22T11:59:50Z'}\n"

func condition(kind, status, reason, message string) string {
	return fmt.Sprintf("conditions: [{type: %q, status: %q, reason: %q, message: %q, lastTransitionTime: '2026-11-22T11:30:00Z'}]", kind, status, reason, message)
}

// faults has an object for each check, and others of its kind that have nothing to report.
var faults = map[string]struct {
	kind, wrong, says string
	well              []string
}{
	"component not ready": {
		"deployments.apps", "spec: {replicas: 2}\nstatus: {readyReplicas: 1}", "1 of 2 pods are ready",
		[]string{"spec: {replicas: 2}\nstatus: {readyReplicas: 2}", "status: {readyReplicas: 1}", "spec: {replicas: 0}"},
	},
	"KubeVirt object not applied": {
		"kubevirts.kubevirt.io", "status: {" + condition("Synchronized", "False", "X", "the node selector fits no node") + "}", "Synchronized is False: the node selector fits no node",
		[]string{"status: {" + condition("Synchronized", "True", "", "") + "}", "status: {" + condition("Degraded", "False", "X", "x") + "}"},
	},
	"API not available": {
		"apiservices.apiregistration.k8s.io", "status: {" + condition("Available", "False", "FailedDiscoveryCheck", "certificate has expired") + "}", "FailedDiscoveryCheck: certificate has expired",
		[]string{"status: {" + condition("Available", "True", "Passed", "x") + "}"},
	},
	"nobody leads": {
		"leases.coordination.k8s.io", "spec: {renewTime: '2026-11-22T11:50:00.000000Z', leaseDurationSeconds: 15, holderIdentity: one}", "it is not renewed; its last holder is one",
		[]string{"spec: {renewTime: '2026-11-22T11:59:50.000000Z', leaseDurationSeconds: 15}", "spec: {}", "metadata: {name: n, namespace: kube-node-lease}\nspec: {renewTime: '2026-11-22T11:50:00.000000Z'}"},
	},
	"certificate near its end": {
		"authorities.diagnose.drydock.dev",
		"authorities: [{entry: a, notBefore: '2026-01-01T00:00:00Z', notAfter: '2026-11-25T00:00:00Z'}, {entry: b, notBefore: '2026-01-01T00:00:00Z', notAfter: '2027-11-25T00:00:00Z'}]",
		"a ends on 2026-11-25 00:00:00",
		[]string{"authorities: [{entry: short, notBefore: '2026-11-22T11:30:00Z', notAfter: '2026-11-22T12:30:00Z'}]"},
	},
	"node does not answer": {
		"nodes", "status: {" + condition("Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.") + "}",
		"Ready is Unknown: NodeStatusUnknown: Kubelet stopped posting node status.", []string{"status: {" + condition("Ready", "True", "KubeletReady", "x") + "}"},
	},
	"node without virt-handler's devices": {
		"nodes", "metadata: {name: n, labels: {kubevirt.io/schedulable: 'true'}}\nstatus: {allocatable: {devices.kubevirt.io/tun: '0'}, " + condition("Ready", "True", "", "") + "}",
		"it has the label kubevirt.io/schedulable, and no devices.kubevirt.io/tun to give: virt-handler is not there",
		[]string{
			"metadata: {labels: {kubevirt.io/schedulable: 'true'}}\nstatus: {allocatable: {devices.kubevirt.io/tun: 1k}, " + condition("Ready", "True", "", "") + "}",
			"metadata: {labels: {kubevirt.io/schedulable: 'false'}}\nstatus: {" + condition("Ready", "True", "", "") + "}",
		},
	},
	"container does not start": {
		"pods", "status: {containerStatuses: [{name: compute, state: {waiting: {reason: ImagePullBackOff, message: 'no such image'}}}]}",
		"container compute: ImagePullBackOff: no such image",
		[]string{"status: {containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}, {name: d, state: {running: {}}}]}"},
	},
	"container restarts": {
		"pods", "status: {containerStatuses: [{name: virt-api, restartCount: 3, lastState: {terminated: {finishedAt: '2026-11-22T11:30:00Z', reason: OOMKilled}}}]}",
		"container virt-api has been restarted (3 times): OOMKilled",
		[]string{"status: {containerStatuses: [{name: c, restartCount: 3, lastState: {terminated: {finishedAt: '2026-11-21T11:30:00Z'}}}, {name: d}]}"},
	},
	"disk not writable": {
		vmis, "status: {phase: Running, " + condition("Paused", "True", "PausedIOError", "disk root: no space left") + "}", "QEMU has stopped the guest: disk root: no space left",
		[]string{"status: {" + condition("Ready", "True", "", "") + "}"},
	},
	"guest stopped": {
		vmis, "status: {phase: Running, " + condition("Paused", "True", "PausedByWatchdog", "the watchdog has stopped it") + "}", "PausedByWatchdog: the watchdog has stopped it",
		[]string{"status: {" + condition("Ready", "False", "GuestMigrating", "x") + ", phase: Running}"},
	},
	"guest's node does not answer": {
		vmis, "status: {phase: Running, " + condition("Ready", "False", "NodeLost", "node n does not answer") + "}", "node n does not answer",
		[]string{"status: {phase: Running, " + condition("Ready", "True", "", "") + "}"},
	},
	"VM waits": {
		vms, "status: {printableStatus: ErrorUnschedulable, " + condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available") + "}", "ErrorUnschedulable: 0/2 nodes are available",
		[]string{
			"status: {printableStatus: Running, " + condition("Ready", "False", "X", "x") + "}", "status: {printableStatus: Stopped, " + condition("Ready", "False", "VMINotExists", "x") + "}",
			justNow + "status: {printableStatus: Starting}",
		},
	},
	"VMI waits": {
		vmis, "status: {phase: Scheduling, " + condition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available") + "}", "it is Scheduling: 0/2 nodes are available",
		[]string{
			"status: {phase: Running}", justNow + "status: {phase: Scheduling}",
			"metadata: {name: web, ownerReferences: [{kind: VirtualMachine}]}\nstatus: {phase: Scheduling, " + condition("PodScheduled", "False", "X", "x") + "}",
		},
	},
	"VMI has failed": {
		vmis, "status: {phase: Failed, reason: GuestPanicked, " + condition("Ready", "False", "X", "the guest has panicked") + "}", "GuestPanicked: the guest has panicked", []string{"status: {phase: Succeeded}"},
	},
	"node does not follow the VMI": {
		vmis, "status: {phase: Running, " + condition("Synchronized", "False", "Failed", "a disk can't be opened") + "}", "Failed: a disk can't be opened", []string{"status: {phase: Running}"},
	},
	"credentials not in the guest": {
		vmis, "status: {phase: Running, " + condition("AccessCredentialsSynchronized", "False", "X", "no agent") + "}", "no agent",
		[]string{"status: {phase: Running, " + condition("AccessCredentialsSynchronized", "True", "X", "") + "}"},
	},
	"volume not in the guest": {
		vmis, "status: {phase: Running, volumeStatus: [{name: data, phase: Pending, hotplugVolume: {attachPodName: x}, message: 'the claim is not bound'}]}",
		"volume data is Pending: the claim is not bound",
		[]string{"status: {phase: Running, volumeStatus: [{name: data, phase: Ready, hotplugVolume: {}, message: plugged}, {name: root, message: x}]}"},
	},
	"migration waits": {
		migrations, "spec: {vmiName: web}\nstatus: {phase: Pending, " + condition(layout.MigrationWaiting, "True", "NodeLimit", "2 migrations leave the node") + "}",
		"of VMI web: 2 migrations leave the node",
		[]string{"status: {phase: Succeeded, " + condition(layout.MigrationWaiting, "True", "NodeLimit", "x") + "}", justNow + "status: {phase: Pending, " + condition(layout.MigrationWaiting, "True", "X", "x") + "}"},
	},
	"migration stuck": {
		migrations, "spec: {vmiName: web}\nstatus: {phase: Scheduling, phaseTransitionTimestamps: [{phase: Scheduling, phaseTransitionTimestamp: '2026-11-22T11:30:00Z'}]}",
		"of VMI web: it is still Scheduling",
		[]string{"status: {phase: Running}", "status: {phase: Scheduling, phaseTransitionTimestamps: [{phase: Scheduling, phaseTransitionTimestamp: '2026-11-22T11:59:30Z'}]}"},
	},
	"migration has failed": {
		migrations, "spec: {vmiName: web}\nstatus: {phase: Failed, migrationState: {failureReason: 'the target was lost'}}", "of VMI web: the target was lost",
		[]string{"status: {phase: Succeeded}", "metadata: {creationTimestamp: '2026-11-20T11:00:00Z'}\nstatus: {phase: Failed}"},
	},
	"drain will wait": {
		vmis, "spec: {evictionStrategy: LiveMigrate}\nstatus: {phase: Running, " + condition("LiveMigratable", "False", "DisksNotLiveMigratable", "PVC a is not shared") + "}",
		"its evictionStrategy is LiveMigrate, and it can't be migrated: PVC a is not shared",
		[]string{"spec: {evictionStrategy: None}\nstatus: {phase: Running, " + condition("LiveMigratable", "False", "X", "x") + "}"},
	},
	"migration required": {vmis, "status: {phase: Running, " + condition("MigrationRequired", "True", "X", "interface blue is to be plugged") + "}", "interface blue is to be plugged", []string{"status: {phase: Running, " + condition("MigrationRequired", "False", "X", "x") + "}"}},
	"restart required":   {vms, "status: {printableStatus: Running, " + condition("RestartRequired", "True", "TemplateChanged", "cores") + "}", "cores", []string{"status: {printableStatus: Running}"}},
	"paused by a user":   {vmis, "status: {phase: Running, " + condition("Paused", "True", "PausedByUser", "a user has paused it") + "}", "a user has paused it", []string{"status: {phase: Running}"}},
	"in maintenance": {
		vms, "metadata: {name: web, namespace: lab, labels: {kubevirt.io/maintenance: repair}}\nstatus: {printableStatus: Maintenance}", "its disks are locked for the pod repair",
		[]string{"status: {printableStatus: Stopped}"},
	},
	"claim lost": {claims, "spec: {volumeName: pv}\nstatus: {phase: Lost}", "its volume pv is gone", []string{"status: {phase: Bound}"}},
	"DataVolume fails": {
		"datavolumes.cdi.kubevirt.io", "status: {phase: ImportInProgress, " + condition("Running", "False", "ImportFailed", "404 Not Found") + "}", "ImportInProgress: ImportFailed: 404 Not Found",
		[]string{
			"status: {phase: Succeeded, " + condition("Running", "False", "Completed", "done") + "}", "status: {phase: Pending, " + condition("Bound", "False", "Pending", "PVC a Pending") + "}",
			"status: {phase: WaitForFirstConsumer, " + condition("Bound", "False", "WaitForFirstConsumer", "x") + "}",
		},
	},
	"snapshot has failed": {"virtualmachinesnapshots.snapshot.kubevirt.io", "status: {phase: Failed, error: {message: x}, " + condition("Failure", "True", "SourceLost", "the VM is gone") + "}", "SourceLost: the VM is gone", []string{"status: {phase: Succeeded}"}},
	"restore has failed":  {"virtualmachinerestores.snapshot.kubevirt.io", "status: {" + condition("Failure", "True", "TargetLost", "the VM is gone") + "}", "TargetLost: the VM is gone", []string{"status: {complete: true}"}},
	"clone has failed":    {"virtualmachineclones.clone.kubevirt.io", "status: {phase: Failed, " + condition("Ready", "False", "SourceLost", "the VM is gone") + "}", "the VM is gone", []string{"status: {phase: Succeeded}"}},
	"snapshot waits": {
		"virtualmachinesnapshots.snapshot.kubevirt.io", "status: {phase: InProgress, " + condition("Progressing", "False", "Source not locked", "the VM is being migrated") + "}", "Source not locked: the VM is being migrated",
		[]string{"status: {phase: Succeeded, " + condition("Progressing", "False", "Operation complete", "x") + "}", justNow + "status: {phase: InProgress}"},
	},
	"restore waits": {
		"virtualmachinerestores.snapshot.kubevirt.io", "status: {complete: false, " + condition("Progressing", "False", "TargetNotReady", "the VM runs") + "}", "TargetNotReady: the VM runs",
		[]string{"status: {complete: true, " + condition("Progressing", "False", "Operation complete", "x") + "}"},
	},
	"clone waits": {
		"virtualmachineclones.clone.kubevirt.io", "status: {phase: SnapshotInProgress, " + condition("Progressing", "False", "SourceDoesNotExist", "there is no VM a") + "}", "SourceDoesNotExist: there is no VM a",
		[]string{"status: {phase: Succeeded}"},
	},
}

func TestEachCheckFindsItsFaultAndNothingElse(t *testing.T) {
	for i := range checks {
		c := &checks[i]
		t.Run(c.name, func(t *testing.T) {
			f, known := faults[c.name]
			if !known {
				t.Fatal("no fault is planted for it")
			}
			found := Examine(slices.Values([]Object{named(t, f.kind, f.wrong)}), noon)
			if len(found) != 1 || found[0].Check != c.name || found[0].Says != f.says || found[0].Notice != c.notice {
				t.Errorf("found %+v, want %q", found, f.says)
			}
			for _, fields := range f.well {
				o := named(t, f.kind, fields)
				if strings.HasPrefix(fields, "metadata") {
					o = object(t, f.kind, fields)
				}
				for _, wrong := range Examine(slices.Values([]Object{o}), noon) {
					if wrong.Check == c.name {
						t.Errorf("found %q in\n%s", wrong.Says, fields)
					}
				}
			}
		})
	}
	if len(faults) != len(checks) {
		t.Errorf("%d faults for %d checks", len(faults), len(checks))
	}
}

func TestEachRunbookExists(t *testing.T) {
	for _, c := range checks {
		if c.runbook == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join("../../../../docs/runbooks", c.runbook+".md")); err != nil {
			t.Errorf("check %q: %v", c.name, err)
		}
	}
}

func TestOneKindOfFaultDoesNotFillThePage(t *testing.T) {
	var objects []Object
	for i := range maxOfOne + 3 {
		o := named(t, vmis, "status: {phase: Failed, reason: GuestPanicked}")
		o.SetName(fmt.Sprintf("web-%02d", i))
		objects = append(objects, o)
	}
	found := Examine(slices.Values(objects), noon)
	if last := found[len(found)-1]; len(found) != maxOfOne+1 || last.Says != "3 more like it" || last.About != "others" {
		t.Errorf("%d findings, the last is %+v", len(found), last)
	}
}

func TestWhatIsWrongComesBeforeWhatIsWorthKnowing(t *testing.T) {
	found := Examine(slices.Values([]Object{
		named(t, vms, "status: {printableStatus: Running, "+condition("RestartRequired", "True", "", "cores")+"}"),
		named(t, vmis, "status: {phase: Failed, reason: GuestPanicked}"),
	}), noon)
	if len(found) != 2 || found[0].About != "VMI lab/web" || found[1].Check != "restart required" {
		t.Errorf("found %+v", found)
	}
}

func event(t *testing.T, kind, reason, message string) Object {
	return object(t, "events", fmt.Sprintf("involvedObject: {kind: PersistentVolumeClaim, uid: u}\ntype: %s\nreason: %s\nmessage: %s\nlastTimestamp: '2026-11-22T11:59:00Z'", kind, reason, message))
}

func TestAClaimThatIsNotBound(t *testing.T) {
	pending := "spec: {storageClassName: fast}\nstatus: {phase: Pending}"
	failed := "ProvisioningFailed: no such class"
	for name, c := range map[string]struct {
		objects []Object
		want    string
	}{
		"its newest warning says why":  {[]Object{named(t, claims, pending), event(t, "Warning", "ProvisioningFailed", "no such class")}, failed},
		"it waits for a first pod":     {objects: []Object{named(t, claims, pending), event(t, "Normal", "WaitForFirstConsumer", "waiting")}},
		"it is new":                    {objects: []Object{object(t, claims, justNow+pending), event(t, "Warning", "ProvisioningFailed", "x")}},
		"it is bound":                  {objects: []Object{named(t, claims, "status: {phase: Bound}"), event(t, "Warning", "ProvisioningFailed", "x")}},
		"it has no class":              {[]Object{named(t, claims, "status: {phase: Pending}")}, "it names no storage class, and there is no volume for it"},
		"the event is another claim's": {objects: []Object{named(t, claims, pending), object(t, "events", "involvedObject: {uid: v}\ntype: Warning\nreason: X\nmessage: x")}},
		"the event is malformed":       {objects: []Object{named(t, claims, pending), object(t, "events", "involvedObject: {uid: u}\ncount: many")}},
	} {
		t.Run(name, func(t *testing.T) {
			var says []string
			for _, f := range Examine(slices.Values(c.objects), noon) {
				says = append(says, f.Says)
			}
			if diff := cmp.Diff(c.want, strings.Join(says, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGuestsWithoutVirtHandler(t *testing.T) {
	guest := named(t, vmis, "status: {phase: Running, nodeName: node1}")
	handler := func(node, ready string) Object {
		return object(t, pods, "metadata: {name: h, labels: {kubevirt.io: virt-handler}}\nspec: {nodeName: "+node+"}\nstatus: {"+condition("Ready", ready, "", "")+"}")
	}
	for name, c := range map[string]struct {
		objects []Object
		want    int
	}{
		"a handler on each node":      {[]Object{guest, handler("node1", "True")}, 0},
		"a handler on another node":   {[]Object{guest, handler("node2", "True")}, 1},
		"one that is not ready":       {[]Object{guest, handler("node1", "False"), handler("node2", "True")}, 1},
		"handlers that were not read": {[]Object{guest}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if found := Examine(slices.Values(c.objects), noon); len(found) != c.want {
				t.Errorf("found %+v", found)
			}
		})
	}
}

func FuzzExamine(f *testing.F) {
	f.Add(vms, "status: {conditions: [3, {type: 4}], printableStatus: 5}")
	f.Add(pods, "status: {containerStatuses: {a: b}}")
	f.Fuzz(func(_ *testing.T, kind, text string) {
		o := Object{Kind: kind, Unstructured: &unstructured.Unstructured{}}
		if yaml.Unmarshal([]byte(text), &o.Object) == nil && o.Object != nil {
			Examine(slices.Values([]Object{o}), noon)
		}
	})
}
