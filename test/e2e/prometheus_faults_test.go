//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/proc"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/ruletable"
)

// faulty makes faults and waits for their alerts.
type faulty struct {
	*monitoringStack
	ns string
	// allHaveKVM means that LowKVMNodesCount can't fire.
	allHaveKVM bool
}

const (
	sees       = "TestPrometheusSeesTheCluster has its fault"
	crashes    = "it needs six crashes, and a VM waits longer after each"
	lostRights = "a component that can't use the API server does not become ready, and without the API server nobody may read its metrics"
)

// withoutFault says why this test has no fault for an alert. test/monitoring fires all of them by the series of a fault.
var withoutFault = map[string]string{
	"DrydockDiskNotWritable":        sees,
	"DrydockNodeSilentWithGuests":   sees,
	"LowReadyVirtHandlerCount":      sees,
	"DrydockCertificateNearEnd":     "no certificate may end sooner than after 40 minutes, of which 30 must have passed without a renewal",
	"DrydockGuestStopped":           "no VMI can ask for a watchdog or a debugger that stops its guest",
	"GuestVCPUQueueHighCritical":    noAgent,
	"GuestVCPUQueueHighWarning":     noAgent,
	"VMNonRecoverableOSPanic":       crashes,
	"VirtApiRESTErrorsBurst":        lostRights,
	"VirtControllerRESTErrorsBurst": lostRights,
	"VirtHandlerRESTErrorsBurst":    lostRights,
}

// TestFaultsFireTheirAlerts makes faults of guests, nodes and components, for which the shipped rules must fire, and cures
// them. TestPrometheusSeesTheCluster has those of disks and of silent nodes. It runs alone: it takes each component away.
func TestFaultsFireTheirAlerts(t *testing.T) {
	onlyInTestAll(t)
	// These need not wait as long as in the shipped rules. Their expressions are the shipped ones.
	f := &faulty{monitoringStack: startMonitoring(t, []string{
		"GuestFilesystemAlmostOutOfSpace", "KubeVirtNoAvailableNodesToRunVMs", "KubeVirtVMGuestMemoryAvailableLow", "KubeVirtVMGuestMemoryPressure",
		"LowKVMNodesCount", "LowReadyVirtAPICount", "LowReadyVirtControllersCount", "LowVirtAPICount", "LowVirtControllersCount",
		"NoReadyVirtAPI", "NoReadyVirtController", "NoReadyVirtHandler", "OrphanedVirtualMachineInstances", "OutdatedVirtualMachineInstanceWorkloads",
		"VMCannotBeEvicted", "VirtAPIDown", "VirtControllerDown", "VirtHandlerDaemonSetRolloutFailing", "VirtHandlerDown",
		"VirtLauncherPodsStuckFailed", "VirtualMachineStuckInUnhealthyState", "VirtualMachineStuckOnNode",
	}), ns: newNamespace(t)}
	f.lasting = map[string]bool{"KubeVirtVMIExcessiveMigrations": true}
	inTurn(t,
		chapter{"every pod is scraped, with a token", f.podsAreScraped},
		chapter{"somebody uses a deprecated version", f.deprecatedIsUsed},
		chapter{"VMs don't get on", f.machinesAreStuck},
		chapter{"failed launcher pods stay", f.failedPodsStay},
		chapter{"a guest has no room left", f.guestIsFull},
		chapter{"a guest moves very often", f.guestMovesOften},
		chapter{"no node takes guests", f.nodesTakeNoGuests},
		chapter{"guests stay in old pods", f.guestsAreOutdated},
		chapter{"one pod of two is dead", f.onePodIsDead},
		chapter{"virt-api and virt-controller are gone", f.deploymentsAreGone},
		chapter{"a node has no virt-handler", f.nodeHasNoHandler},
		chapter{"virt-handler is gone", f.handlersAreGone},
		chapter{"every alert has ended", f.allEnd},
		chapter{"no alert was forgotten", f.noneIsForgotten},
	)
}

func (f *faulty) deprecatedIsUsed(t *testing.T) {
	eventuallyWithin(t, 2*patience, "the alert about a deprecated version", func(ctx context.Context) error {
		// Nothing has this name; the alert is about requests.
		out, err := kubectl(ctx, "get", "--raw", "/apis/clone.kubevirt.io/v1alpha1/namespaces/"+f.ns+"/virtualmachineclones/nothing")
		if err == nil || !strings.Contains(out, "not found") {
			return fmt.Errorf("asking for nothing is answered %q", out)
		}
		for _, one := range f.alerts.list() {
			if one.Labels["alertname"] == "KubeVirtDeprecatedAPIRequested" && one.Labels["version"] == "v1alpha1" {
				return nil
			}
		}
		return fmt.Errorf("Alertmanager has sent %v", f.alerts.list())
	})
}

// machinesAreStuck has a guest that can't migrate, a VM without a node, and one whose guest does not end.
func (f *faulty) machinesAreStuck(t *testing.T) {
	create(t, evictable(newVM(onPodBridge(newVMI(f.ns, "immovable")), v1.RunStrategyAlways)))
	nowhere := newVMI(f.ns, "nowhere")
	nowhere.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "nowhere"}
	create(t, newVM(nowhere, v1.RunStrategyAlways))
	slow := newVMI(f.ns, "hangs")
	slow.Spec.TerminationGracePeriodSeconds = new(int64(3600))
	bootVM(t, newVM(slow, v1.RunStrategyAlways))
	thaw := freeze(t, qemuOf(t, awaitRunning(t, f.ns, "hangs")))
	do(t, f.ns, "stop", "hangs")

	f.fires(t, "VMCannotBeEvicted", "namespace", f.ns, "name", "immovable")
	f.fires(t, "VirtualMachineStuckInUnhealthyState", "namespace", f.ns, "name", "nowhere")
	f.fires(t, "VirtualMachineStuckOnNode", "namespace", f.ns, "name", "hangs")
	thaw()
	for _, name := range []string{"immovable", "nowhere", "hangs"} {
		removeVM(t, f.ns, name)
	}
}

// failedPodsStay makes pods that have failed without a node, as virt-controller and a kubelet would.
func (f *faulty) failedPodsStay(t *testing.T) {
	const many = 200
	controller := asController(t)
	for i := range many {
		pod := launcherPodThatWaits(f.ns, fmt.Sprint("failed-", i))
		if err := controller.Create(t.Context(), pod); err != nil {
			t.Fatalf("making a launcher pod: %v", err)
		}
		failed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))
		if err := cluster.client.Status().Patch(t.Context(), pod, failed); err != nil {
			t.Fatalf("letting a launcher pod fail: %v", err)
		}
	}
	f.fires(t, "VirtLauncherPodsStuckFailed")
	if err := cluster.client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(f.ns), client.MatchingLabels{v1.AppLabel: layout.LauncherApp}); err != nil {
		t.Fatal(err)
	}
}

// launcherPodThatWaits returns a pod that the policies take for a launcher's. No scheduler gives it a node.
func launcherPodThatWaits(namespace, name string) *corev1.Pod {
	pod := toolsPod(namespace, name)
	pod.Labels = map[string]string{v1.AppLabel: layout.LauncherApp}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "drydock.dev/never"}}
	pod.Spec.AutomountServiceAccountToken = new(false)
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(107)), RunAsGroup: new(int64(107)), FSGroup: new(int64(107)),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	compute := &pod.Spec.Containers[0]
	compute.Name = layout.ComputeContainer
	compute.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	return pod
}

func qemuOf(t *testing.T, vmi *v1.VirtualMachineInstance) int {
	t.Helper()
	all, err := proc.OfPod(string(launcherPod(t, vmi).UID))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if strings.HasPrefix(p.Name(), "qemu-system-") {
			return p.PID
		}
	}
	t.Fatalf("of the processes %v of %s none is QEMU", all, vmi.Name)
	return 0
}

// guestIsFull fills a guest's file system and its memory. The guest goes on in the next chapters.
func (f *faulty) guestIsFull(t *testing.T) {
	vmi := newVMI(f.ns, "full")
	vmi.Spec.Domain.Memory.Guest = new(resource.MustParse("256Mi"))
	addDisk(vmi, v1.Disk{Name: "data", Serial: "DATA", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse("64Mi")}})
	g := bootVM(t, newVM(vmi, v1.RunStrategyAlways))
	disk := g.device("DATA")
	g.run("mkfs.ext4 -q -F -m 0 -b 1024 " + disk + " && mkdir -p /mnt/data && mount -t ext4 " + disk + " /mnt/data && cp $(readlink -f $(which busybox)) /mnt/data/busybox")
	g.run("dd if=/dev/zero of=/mnt/data/most bs=1k conv=fsync count=$(df -kP /mnt/data | awk 'NR==2 {print int($2*0.9)-$3}') 2>/dev/null")
	f.fires(t, "GuestFilesystemAlmostOutOfSpace", "namespace", f.ns, "name", "full", "severity", "warning")
	g.run("dd if=/dev/zero of=/mnt/data/rest bs=1k conv=fsync 2>/dev/null; sync")
	f.fires(t, "GuestFilesystemAlmostOutOfSpace", "namespace", f.ns, "name", "full", "severity", "critical")
	g.run("rm /mnt/data/most /mnt/data/rest && sync")

	available := "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)"
	g.run("mkdir -p /mnt/memory && mount -t tmpfs -o size=100% tmpfs /mnt/memory && dd if=/dev/zero of=/mnt/memory/most bs=1k count=$((" + available + "-20000)) 2>/dev/null")
	g.run("while [ " + available + " -gt 5000 ]; do dd if=/dev/zero bs=64k count=4 2>/dev/null >>/mnt/memory/rest; done")
	f.fires(t, "KubeVirtVMGuestMemoryAvailableLow", "namespace", f.ns, "name", "full")
	// A program's pages that the kernel has dropped are read from the disk again and again.
	g.run("(until [ -e /run/enough ]; do echo 3 >/proc/sys/vm/drop_caches; /mnt/data/busybox true; done) >/dev/null 2>&1 &")
	f.fires(t, "KubeVirtVMGuestMemoryPressure", "namespace", f.ns, "name", "full")
	g.run("umount /mnt/memory && touch /run/enough")
}

func (f *faulty) guestMovesOften(t *testing.T) {
	bootVM(t, newMigratableVM(t, f.ns, "moves"))
	for range 12 {
		migrated(t, f.ns, "moves")
	}
	f.fires(t, "KubeVirtVMIExcessiveMigrations", "namespace", f.ns, "vmi", "moves")
	removeVM(t, f.ns, "moves")
}

func (f *faulty) nodesTakeNoGuests(t *testing.T) {
	uncordon := []func(){cordon(t, node1), cordon(t, node2)}
	f.fires(t, "KubeVirtNoAvailableNodesToRunVMs")
	for _, back := range uncordon {
		back()
	}
	kvm, err := f.query(t.Context(), `max(drydock_nodes_with_kvm) >= 2`)
	if err != nil {
		t.Fatal(err)
	}
	if f.allHaveKVM = len(kvm) > 0; f.allHaveKVM {
		return
	}
	configure(t, `{"spec":{"configuration":{"developerConfiguration":{"useEmulation":false}}}}`, `{"spec":{"configuration":{"developerConfiguration":{"useEmulation":true}}}}`)
	f.fires(t, "LowKVMNodesCount")
}

func (f *faulty) guestsAreOutdated(t *testing.T) {
	awaitRunning(t, f.ns, "full")
	loadAs(t, filepath.Join("..", "..", "build", "images", "virt-launcher.tar"), launcherImage, newerLauncher)
	configure(t, `{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":[]}}}`, `{"spec":{"workloadUpdateStrategy":{"workloadUpdateMethods":["LiveMigrate"]}}}`)
	launchWith(t, newerLauncher)
	f.fires(t, "OutdatedVirtualMachineInstanceWorkloads")
}

func componentPods(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.client.List(t.Context(), &pods, client.InNamespace("kubevirt"), client.MatchingLabels{v1.AppLabel: name}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods of %s (%v)", len(pods.Items), name, err)
	}
	return pods.Items
}

// replaced ends a pod whose containers wait long for their next start.
func replaced(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	deleteObject(t, pod)
	awaitGone(t, pod)
}

func (f *faulty) onePodIsDead(t *testing.T) {
	for _, c := range []struct{ name, lowReady, few string }{
		{"virt-api", "LowReadyVirtAPICount", "LowVirtAPICount"},
		{"virt-controller", "LowReadyVirtControllersCount", "LowVirtControllersCount"},
	} {
		pod := &componentPods(t, c.name)[0]
		revive := keepDead(t, string(pod.UID))
		f.fires(t, c.lowReady, "pod", pod.Name)
		f.fires(t, c.few)
		revive()
		replaced(t, pod)
	}
}

func (f *faulty) deploymentsAreGone(t *testing.T) {
	for _, c := range []struct{ name, down, none string }{
		{"virt-api", "VirtAPIDown", "NoReadyVirtAPI"},
		{"virt-controller", "VirtControllerDown", "NoReadyVirtController"},
	} {
		back := scale(t, c.name, 0)
		f.fires(t, c.down)
		f.fires(t, c.none)
		back()
	}
}

// nodeHasNoHandler waits until no virt-handler is new: the alert ignores a rollout.
func (f *faulty) nodeHasNoHandler(t *testing.T) {
	pod := handlerPod(t, node2)
	revive := keepDead(t, string(pod.UID))
	f.fires(t, "VirtHandlerDaemonSetRolloutFailing")
	revive()
	replaced(t, pod)
}

func (f *faulty) handlersAreGone(t *testing.T) {
	node := awaitRunning(t, f.ns, "full").Status.NodeName
	place := func(ctx context.Context, value string) error {
		out, err := kubectl(ctx, "-n", "kubevirt", "patch", "daemonset/virt-handler", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"drydock.dev/nowhere":`+value+`}}}}}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	t.Cleanup(func() {
		if err := place(context.Background(), "null"); err != nil {
			t.Errorf("having virt-handler on all nodes again: %v", err)
		}
	})
	if err := place(t.Context(), `"true"`); err != nil {
		t.Fatal(err)
	}
	f.fires(t, "VirtHandlerDown")
	f.fires(t, "NoReadyVirtHandler")
	f.fires(t, "OrphanedVirtualMachineInstances", "node", node)
}

// noneIsForgotten compares the table of alerts with those that have fired.
func (f *faulty) noneIsForgotten(t *testing.T) {
	fired := map[string]bool{}
	for _, one := range f.alerts.list() {
		fired[one.Labels["alertname"]] = true
	}
	for _, a := range ruletable.Alerts() {
		impossible := withoutFault[a.Name] != "" || a.Name == "LowKVMNodesCount" && f.allHaveKVM
		if !impossible && !fired[a.Name] {
			t.Errorf("no fault has fired %s: enter why it has none", a.Name)
		}
	}
	for name, why := range withoutFault {
		if !slices.ContainsFunc(ruletable.Alerts(), func(a ruletable.Alert) bool { return a.Name == name }) {
			t.Errorf("the rules have no alert %s (%s)", name, why)
		}
	}
}
