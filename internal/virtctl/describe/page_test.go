package describe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	of := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), of); err != nil {
		t.Fatal(err)
	}
	return of
}

const runningVM = `
metadata: {name: web, namespace: lab, uid: vm, creationTimestamp: "2026-11-20T12:00:00Z"}
spec:
  runStrategy: Always
  instancetype: {name: u1.small}
  preference: {name: debian}
  template: {spec: {domain: {devices: {}}}}
status:
  printableStatus: Running
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2026-11-22T11:00:00Z"}
  - {type: RestartRequired, status: "True", reason: TemplateChanged, lastTransitionTime: "2026-11-22T11:58:00Z", message: "these changes take effect when the VM is restarted: spec.template.spec.domain.cpu.cores, because it can't be changed while the guest runs"}
`

const runningVMI = `
metadata: {name: web, namespace: lab, uid: vmi}
spec:
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: default, masquerade: {}}, {name: blue, bridge: {}, macAddress: "02:00:00:00:00:01"}]
  networks: [{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root-claim}}
  - {name: data, dataVolume: {name: data-dv}}
  - {name: init, cloudInitNoCloud: {userData: "password: Tr0ub4dor"}}
  - {name: os, containerDisk: {image: registry.example/os}}
status:
  phase: Running
  nodeName: node1
  activePods: {pod: node1}
  phaseTransitionTimestamps: [{phase: Running, phaseTransitionTimestamp: "2026-11-22T11:00:00Z"}]
  machine: {type: pc-q35-7.2}
  currentCPUTopology: {sockets: 2, cores: 2, threads: 1}
  guestOSInfo: {prettyName: Debian GNU/Linux 12, kernelRelease: 6.1.0}
  interfaces: [{name: default, mac: "02:00:00:00:00:02", ipAddress: 10.0.0.3, ipAddresses: [10.0.0.3, "fe80::3"], linkState: up, infoSource: domain}, {name: blue, infoSource: domain}]
  volumeStatus:
  - {name: root, target: vda, persistentVolumeClaimInfo: {claimName: root-claim, capacity: {storage: 10Gi}}}
  - {name: data, target: sda, hotplugVolume: {attachPodName: x}, phase: Pending, message: the claim is not bound}
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2026-11-22T11:00:05Z"}
  - {type: AgentConnected, status: "True", lastTransitionTime: "2026-11-22T11:01:00Z"}
  - {type: drydock.dev/Accelerated, status: "False"}
`

const runningPage = `VM lab/web: Running, made 2d ago

Runs          on node node1, Running for 60m, emulated
Is            4 CPUs, 1Gi of memory, machine type pc-q35-7.2, instance type u1.small, preference debian
Guest         Debian GNU/Linux 12, kernel 6.1.0
Run strategy  Always
Waits for     nothing
Migration     moves: Failed: from node node2 to node node1: the target was lost, made 30m ago

Changes that have not reached the guest
  spec.template.spec.volumes[data] takes effect live, and waits for the volume, which is Pending: the claim is not bound
  spec.template.spec.domain.cpu.cores takes effect by restart, and waits for a restart of the VM: it can't be changed while the guest runs

Disks
  root  claim root-claim    vda, 10Gi
  data  DataVolume data-dv  sda, plugged: Pending: the claim is not bound
  init  cloud-init
  os    image registry.example/os

Interfaces
  default  the pods' network  02:00:00:00:00:02  10.0.0.3, fe80::3  up
  blue     network blue       02:00:00:00:00:01  no address known

Snapshots
  after   Failed: the VM is gone  10m ago
  before  Succeeded               24h ago

What changed last
  90s ago  pod virt-launcher-web: Pulled: the image is there
  2m ago   condition RestartRequired is True: these changes take effect when the VM is restarted: spec.template.spec.domain.cpu.cores, because it can't be changed while the guest runs
  59m ago  condition AgentConnected is True
  59m ago  condition Ready is True
`

func running(t *testing.T) *facts {
	ready, taken := "Failed", metav1.NewTime(noon.Add(-10*time.Minute))
	why := "the VM is gone"
	failed := snapshotv1.VirtualMachineSnapshot{Status: &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.VirtualMachineSnapshotPhase(ready), Error: &snapshotv1.Error{Message: &why}}}
	failed.Name, failed.CreationTimestamp = "after", taken
	made := snapshotv1.VirtualMachineSnapshot{Status: &snapshotv1.VirtualMachineSnapshotStatus{Phase: snapshotv1.Succeeded}}
	made.Name, made.CreationTimestamp = "before", metav1.NewTime(noon.Add(-24*time.Hour))
	return &facts{
		vm: read[v1.VirtualMachine](t, runningVM), vmi: read[v1.VirtualMachineInstance](t, runningVMI), now: noon,
		migrations: []v1.VirtualMachineInstanceMigration{*read[v1.VirtualMachineInstanceMigration](t, `
metadata: {name: moves, creationTimestamp: "2026-11-22T11:30:00Z"}
status: {phase: Failed, migrationState: {sourceNode: node2, targetNode: node1, failureReason: the target was lost}}
`)},
		snapshots: []snapshotv1.VirtualMachineSnapshot{made, failed},
		news:      []news{{noon.Add(-90 * time.Second), "pod virt-launcher-web: Pulled: the image is there"}},
	}
}

func TestThePageOfAMachineThatRuns(t *testing.T) {
	if diff := cmp.Diff(runningPage, trimmed(running(t).page())); diff != "" {
		t.Error(diff)
	}
}

// trimmed removes the spaces that a table leaves at the ends of lines.
func trimmed(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

func TestWhereAMachineIsAndWhatItWaitsFor(t *testing.T) {
	const template = "spec: {runStrategy: %s, template: {spec: {domain: {cpu: {cores: 1}, devices: {}}}}}\n"
	vm := func(strategy, status string) string {
		return "metadata: {name: web, namespace: lab}\n" + fmt.Sprintf(template, strategy) + status
	}
	for name, c := range map[string]struct {
		vm, vmi string
		want    []string
	}{
		"stopped":                {vm("Halted", `status: {printableStatus: Stopped, conditions: [{type: Ready, status: "False", reason: VMINotExists, message: there is no VMI}]}`), "", []string{"Runs          nowhere\n", "Is            1 CPU\n", "Waits for     nothing\n"}},
		"not seen yet":           {vm("Always", ""), "", []string{"VM lab/web: not seen by virt-controller yet\n", "Waits for     nothing\n"}},
		"refused":                {vm("Always", `status: {printableStatus: Stopped, conditions: [{type: Failure, status: "True", message: quota}]}`), "", []string{"Waits for     quota\n"}},
		"no node fits":           {vm("Always", `status: {printableStatus: ErrorUnschedulable}`), `status: {phase: Scheduling, conditions: [{type: PodScheduled, status: "False", message: 0/2 nodes, lastTransitionTime: "2026-11-22T11:55:00Z"}]}`, []string{"Runs          on no node yet\n", "Waits for     0/2 nodes (for 5m)\n"}},
		"paused by an I/O error": {vm("Always", `status: {printableStatus: Paused}`), `status: {phase: Running, nodeName: node1, conditions: [{type: Ready, status: "False", reason: PausedIOError, message: no space left}]}`, []string{"Runs          on node node1\n", "Waits for     no space left\n"}},
		"a VMI that has failed":  {"", "metadata: {name: web, namespace: lab}\nstatus: {phase: Failed, reason: GuestPanicked, nodeName: node1}", []string{"VMI lab/web: Failed: GuestPanicked\n", "no more; it was on node node1\n", "Waits for  nothing\n"}},
		"a VMI that waits":       {"", "metadata: {name: web, namespace: lab}\nstatus: {conditions: [{type: Ready, status: Unknown, reason: NodeLost}]}", []string{"VMI lab/web: Pending\n", "Waits for  NodeLost\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &facts{now: noon}
			if c.vm != "" {
				f.vm = read[v1.VirtualMachine](t, c.vm)
			}
			if c.vmi != "" {
				f.vmi = read[v1.VirtualMachineInstance](t, c.vmi)
			}
			page := f.page()
			for _, want := range c.want {
				if !strings.Contains(page, want) {
					t.Errorf("the page lacks %q:\n%s", want, page)
				}
			}
		})
	}
}

// TestNothingOfTheClusterReachesTheTerminalRaw puts control sequences into every text.
func TestNothingOfTheClusterReachesTheTerminalRaw(t *testing.T) {
	const hostile = "\x1b[2J\u202e\r\n\tx\x07\u200b"
	f := running(t)
	f.vm.Name, f.vm.Spec.Instancetype.Name, f.vmi.Status.NodeName, f.vmi.Status.Machine.Type = hostile, hostile, hostile, hostile
	f.vmi.Status.GuestOSInfo.PrettyName, f.vmi.Status.GuestOSInfo.KernelRelease = hostile, hostile
	f.vmi.Status.Interfaces[0].IPs, f.vmi.Status.Interfaces[0].MAC = []string{hostile}, hostile
	f.vmi.Spec.Volumes[0].Name, f.vmi.Spec.Volumes[3].ContainerDisk.Image = hostile, hostile
	f.vmi.Status.VolumeStatus[1].Message, f.vmi.Status.Conditions[0].Message, f.vm.Status.Conditions[1].Message = hostile, hostile, hostile
	f.vmi.Status.Conditions[0].Status, f.snapshots[0].Name, f.migrations[0].Name, f.news[0].text = "False", hostile, hostile, hostile
	f.migrations[0].Status.MigrationState.FailureReason = hostile
	for _, r := range f.page() {
		if strings.ContainsRune("\x1b\u202e\r\t\x07\u200b", r) {
			t.Errorf("the page has %U", r)
		}
	}
}

func TestThePageIsBounded(t *testing.T) {
	f := running(t)
	for i := range 5000 {
		f.vmi.Spec.Volumes = append(f.vmi.Spec.Volumes, v1.Volume{Name: fmt.Sprint(i)})
		f.news = newest(append(f.news, news{noon, "x"}))
		f.vmi.Status.Interfaces[0].IPs = append(f.vmi.Status.Interfaces[0].IPs, "10.0.0.1")
	}
	if page := f.page(); strings.Count(page, "\n") > 80 || !strings.Contains(page, "… and 4984 more\n") || len(page) > 1<<16 {
		t.Errorf("the page has %d lines and %d bytes", strings.Count(page, "\n"), len(page))
	}
	if len(f.news) != maxNews {
		t.Errorf("%d news are kept", len(f.news))
	}
}
