//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/shipped"
)

const (
	classLocal     = "local"
	classImmediate = "local-immediate"
	node1          = "node1"
	node2          = "node2"
)

// The disk's serial is the volume's name, in capitals.
func addDataVolume(vm *v1.VirtualMachine, name, class string, source cdiv1.DataVolumeSource) {
	vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, v1.DataVolumeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: vm.Name + "-" + name},
		Spec: cdiv1.DataVolumeSpec{Source: &source, Storage: &cdiv1.StorageSpec{
			StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			},
		}},
	})
	addClaimDisk(vm, name, v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: vm.Name + "-" + name}})
}

func addClaimDisk(vm *v1.VirtualMachine, name string, source v1.VolumeSource) {
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, v1.Disk{
		Name: name, Serial: strings.ToUpper(name), DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
	})
	spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
}

func blankDisk() cdiv1.DataVolumeSource {
	return cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}
}

func vmWithBlankDisk(ns, name, class string) *v1.VirtualMachine {
	vm := newVM(newVMI(ns, name), v1.RunStrategyAlways)
	addDataVolume(vm, "data", class, blankDisk())
	return vm
}

func ask(vm *v1.VirtualMachine, device corev1.ResourceName) {
	one := corev1.ResourceList{device: resource.MustParse("1")}
	r := &vm.Spec.Template.Spec.Domain.Resources
	r.Requests, r.Limits = one, one
}

func offer(t *testing.T, node string, device corev1.ResourceName) {
	t.Helper()
	patch := func(ctx context.Context, value string) error {
		path := strings.ReplaceAll(string(device), "/", "~1")
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return cluster.client.Status().Patch(ctx, n, client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, value, path)))
	}
	if err := patch(t.Context(), `[{"op": "add", "path": "/status/capacity/%s", "value": "10"}]`); err != nil {
		t.Fatalf("offering %s on %s: %v", device, node, err)
	}
	t.Cleanup(func() {
		if err := patch(context.Background(), `[{"op": "remove", "path": "/status/capacity/%s"}]`); err != nil {
			t.Errorf("taking %s from %s: %v", device, node, err)
		}
	})
}

func taint(t *testing.T, node, key string) {
	t.Helper()
	if out, err := kubectl(t.Context(), "taint", "node", node, key+"=:NoSchedule"); err != nil {
		t.Fatalf("tainting %s: %v\n%s", node, err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.Background(), "taint", "node", node, key+"-"); err != nil {
			t.Errorf("taking the taint off %s: %v\n%s", node, err, out)
		}
	})
}

type record struct {
	mu sync.Mutex
	// phases has those of each DataVolume, in order; provisioning has the claims of each provisioning pod, by its UID.
	phases       map[string][]cdiv1.DataVolumePhase
	provisioning map[types.UID][]string
}

func watchDisks(t *testing.T, ns string) *record {
	t.Helper()
	r := &record{phases: map[string][]cdiv1.DataVolumePhase{}, provisioning: map[types.UID][]string{}}
	for _, list := range []client.ObjectList{&cdiv1.DataVolumeList{}, &corev1.PodList{}} {
		w, err := cluster.client.Watch(t.Context(), list, client.InNamespace(ns))
		if err != nil {
			t.Fatalf("watching %T: %v", list, err)
		}
		t.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				r.note(event)
			}
		}()
	}
	return r
}

func (r *record) note(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := event.Object.(type) {
	case *cdiv1.DataVolume:
		if seen := r.phases[o.Name]; o.Status.Phase != "" && (len(seen) == 0 || seen[len(seen)-1] != o.Status.Phase) {
			r.phases[o.Name] = append(seen, o.Status.Phase)
		}
	case *corev1.Pod:
		if o.Annotations[v1.EphemeralProvisioningObject] != "" {
			r.provisioning[o.UID] = claimsOf(o)
		}
	}
}

func claimsOf(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		}
	}
	slices.Sort(out)
	return out
}

func (r *record) provisioningPods() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.provisioning)
}

func awaitOn(t *testing.T, ns, name, node string) {
	t.Helper()
	vmi := awaitRunning(t, ns, name)
	if vmi.Status.NodeName != node {
		t.Errorf("%s runs on %s, want %s", name, vmi.Status.NodeName, node)
	}
}

func awaitSaying(t *testing.T, ns, name string, status v1.VirtualMachinePrintableStatus, text string) {
	t.Helper()
	awaitVM(t, ns, name, fmt.Sprintf("status %s and %q", status, text), func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == status && strings.Contains(fmt.Sprint(vm.Status.Conditions), text)
	})
}

func awaitNoProvisioningPod(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "no provisioning pod", func(ctx context.Context) error {
		pod, err := provisioningPod(ctx, ns)
		if err != nil {
			return err
		}
		if pod != nil {
			return fmt.Errorf("there is %s", pod.Name)
		}
		return nil
	})
}

func provisioningPod(ctx context.Context, ns string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := cluster.client.List(ctx, &pods, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].Annotations[v1.EphemeralProvisioningObject] != "" {
			return &pods.Items[i], nil
		}
	}
	return nil, nil
}

func awaitProvisioningPod(t *testing.T, ns string, before types.UID) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "a provisioning pod", func(ctx context.Context) error {
		pod, err := provisioningPod(ctx, ns)
		if err == nil && (pod == nil || pod.UID == before) {
			err = fmt.Errorf("there is none, or the one before")
		}
		found = pod
		return err
	})
	return found
}

// serveImage starts a pod that serves a compressed qcow2 image whose content begins with the text. It returns the
// image's URL and the content's checksum.
func serveImage(t *testing.T, ns, text string) (url, sum string) {
	t.Helper()
	folder := filepath.Join(os.Getenv("DRYDOCK_DIR"), "shared", ns+"-web")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // the cluster's folder is removed as a whole
	content := make([]byte, 8<<20)
	for i := range content {
		content[i] = text[i%len(text)]
	}
	raw := filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(raw, content, 0o644); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(folder, "image.qcow2")
	for _, args := range [][]string{{shipped.Program(t, "qemu-img"), "convert", "-O", "qcow2", raw, image}, {"gzip", image}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	pod := toolsPod(ns, "web")
	pod.Spec.Containers[0].Command = []string{"busybox", "httpd", "-f", "-p", "8080", "-h", "/srv/web"}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "web", MountPath: "/srv/web"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "web", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: "/srv/shared/" + ns + "-web"},
	}}}
	create(t, pod)
	address := awaitPodRunning(t, ns, "web").Status.PodIP
	return "http://" + address + ":8080/image.qcow2.gz", fmt.Sprintf("%x", sha256.Sum256(content))
}

// importPhases are the phases of an import, in order, in a class that waits for its first consumer.
var importPhases = []cdiv1.DataVolumePhase{
	cdiv1.Pending, cdiv1.WaitForFirstConsumer, cdiv1.PVCBound, cdiv1.ImportScheduled, cdiv1.ImportInProgress, cdiv1.Succeeded,
}

// TestDisksFollowTheVM starts a VM with DataVolumes of all sources, in a class that waits for its first consumer,
// on the node that is not the default choice. The API server's tests play the scheduler, the provisioner and the
// workers; here they are real, and the guest must read the disks.
func TestDisksFollowTheVM(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	url, sum := serveImage(t, ns, "what-the-server-has\n")
	vm := newVM(newVMI(ns, "placed"), v1.RunStrategyAlways)
	vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node2}
	addDataVolume(vm, "web", classLocal, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}})
	addDataVolume(vm, "registry", classLocal, cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
		URL: new("docker://" + guestImage), PullMethod: new(cdiv1.RegistryPullNode),
	}})
	addDataVolume(vm, "blank", classLocal, blankDisk())
	addDataVolume(vm, "device", classLocal, fromWeb(url))
	vm.Spec.DataVolumeTemplates[3].Spec.Storage.VolumeMode = new(corev1.PersistentVolumeBlock)
	seen := watchDisks(t, ns)
	g := bootVM(t, vm)

	awaitOn(t, ns, "placed", node2)
	for _, name := range []string{"WEB", "REGISTRY", "BLANK", "DEVICE"} {
		if bytes := g.diskBySerial(name).bytes; bytes != claimSize {
			t.Errorf("disk %s has %d bytes in the guest, want %d", name, bytes, claimSize)
		}
	}
	for _, name := range []string{"WEB", "DEVICE"} {
		g.sees("the checksum of what the server has", "dd if="+g.device(name)+" bs=1M count=8 2>/dev/null | sha256sum | cut -d' ' -f1", sum)
	}
	g.sees("zeros on the blank disk", "tr -d '\\0' < "+g.device("BLANK")+" | wc -c", "0")
	g.sees("the same disk that the guest has booted from",
		"n=$(cat /sys/class/block/vda/size); for d in vda $(basename "+g.device("REGISTRY")+"); do dd if=/dev/$d bs=512 skip=$((n/2)) count=2048 2>/dev/null | sha256sum; done | uniq | wc -l", "1")

	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, template := range vm.Spec.DataVolumeTemplates {
		if got := seen.phases[template.Name]; !slices.Equal(got, importPhases) {
			t.Errorf("the phases of %s are %v, want %v", template.Name, got, importPhases)
		}
	}
	if len(seen.provisioning) != 1 {
		t.Errorf("there were %d provisioning pods, want 1", len(seen.provisioning))
	}
	for _, claims := range seen.provisioning {
		if !slices.Equal(claims, []string{"placed-blank", "placed-device", "placed-registry", "placed-web"}) {
			t.Errorf("the provisioning pod has the claims %v", claims)
		}
	}
}

// TestDisksGoWhereOnlyTheVMFits has constraints that only the VM has, and its disk must be made on its node. In
// the control run the worker may bind the claim, and the VM must fail to start. The scheduler must be real. Not
// parallel: it taints a node.
func TestDisksGoWhereOnlyTheVMFits(t *testing.T) {
	onlyInTestAll(t)
	ns := newNamespace(t)
	const device, key = "drydock.dev/e2e-device", "drydock.dev/e2e-taint"
	offer(t, node2, device)
	blocker := toolsPod(ns, "blocker")
	blocker.Labels = map[string]string{"stay": "away"}
	blocker.Spec.NodeName = node1
	create(t, blocker)
	awaitPodRunning(t, ns, "blocker")
	taint(t, node2, key)
	tolerant := []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	made := func(name string, constrain func(*v1.VirtualMachine)) *v1.VirtualMachine {
		vm := vmWithBlankDisk(ns, name, classLocal)
		vm.Spec.Template.Spec.Tolerations = tolerant
		constrain(vm)
		return vm
	}
	devices := func(vm *v1.VirtualMachine) { ask(vm, device) }

	create(t, made("device", devices))
	create(t, made("anti-affinity", func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: blocker.Labels},
			}},
		}}
	}))
	create(t, made("control", func(vm *v1.VirtualMachine) {
		devices(vm)
		vm.Spec.DataVolumeTemplates[0].Annotations = map[string]string{layout.AnnImmediate: ""}
	}))
	awaitOn(t, ns, "device", node2)
	awaitOn(t, ns, "anti-affinity", node2)
	awaitSaying(t, ns, "control", v1.VirtualMachineStatusUnschedulable, "nodes are available")
}

// TestAVMThatFitsNowhereRecovers has no node for a VM until one offers the requested resource: then the real
// scheduler must place the provisioning pod there. launcherpod covers that pod's constraints.
func TestAVMThatFitsNowhereRecovers(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	const device = "drydock.dev/e2e-rare-device"
	vm := vmWithBlankDisk(ns, "rare", classLocal)
	ask(vm, device)
	create(t, vm)
	awaitSaying(t, ns, "rare", v1.VirtualMachineStatusUnschedulable, "Insufficient "+device)
	offer(t, node2, device)
	awaitOn(t, ns, "rare", node2)
}

// TestProvisioningThatIsCutShortLeavesNothing stops, restarts and deletes a VM while its disks are being placed, and
// deletes and evicts the provisioning pod. Nothing may be left. The real scheduler, which has chosen a node, and the
// real eviction API take part.
func TestProvisioningThatIsCutShortLeavesNothing(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	const device = "drydock.dev/e2e-late-device"
	vm := vmWithBlankDisk(ns, "late", classLocal)
	ask(vm, device)
	create(t, vm)

	pod := awaitProvisioningPod(t, ns, "")
	do(t, ns, "stop", "late")
	awaitPrintable(t, ns, "late", v1.VirtualMachineStatusStopped)
	awaitNoProvisioningPod(t, ns)

	do(t, ns, "start", "late")
	pod = awaitProvisioningPod(t, ns, pod.UID)
	evict(t, pod)
	pod = awaitProvisioningPod(t, ns, pod.UID)
	sayEvicted(t, pod)
	awaitProvisioningPod(t, ns, pod.UID)

	deleteObject(t, vm)
	awaitGone(t, vm)
	awaitNoProvisioningPod(t, ns)
	disk := metav1.ObjectMeta{Namespace: ns, Name: "late-data"}
	awaitGone(t, &cdiv1.DataVolume{ObjectMeta: disk})
	awaitGone(t, &corev1.PersistentVolumeClaim{ObjectMeta: disk})

	// The second attempt finds a claim whose node was lost before it was bound.
	again := vmWithBlankDisk(ns, "late", classLocal)
	again.Spec.RunStrategy = new(v1.RunStrategyHalted)
	create(t, again)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: disk}
	eventually(t, "a claim that the scheduler has settled on a lost node for", func(ctx context.Context) error {
		return cluster.client.Patch(ctx, claim, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"node-that-burned"}}}`)))
	})
	do(t, ns, "start", "late")
	awaitRunning(t, ns, "late")
	awaitNoProvisioningPod(t, ns)
}

func evict(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := cluster.client.SubResource("eviction").Create(t.Context(), pod, eviction); err != nil {
		t.Fatalf("evicting %s: %v", pod.Name, err)
	}
}

// sayEvicted sets the status that a kubelet gives a pod when its node is short of a resource: it has failed, and stays.
func sayEvicted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Failed", "reason": "Evicted"}}`))
	if err := cluster.client.Status().Patch(t.Context(), pod, patch); err != nil {
		t.Fatalf("saying of %s that it is evicted: %v", pod.Name, err)
	}
}

func claimOn(t *testing.T, ns, name, node string) {
	t.Helper()
	class := classLocal
	create(t, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
			VolumeMode: new(corev1.PersistentVolumeBlock),
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	})
	user := toolsPod(ns, "user-of-"+name)
	user.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	user.Spec.Volumes = []corev1.Volume{{Name: "claim", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	create(t, user)
	awaitPodRunning(t, ns, user.Name)
	deleteObject(t, user)
}

func claimVolume(name string) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}
}

// TestNewDisksJoinThoseThatAreBound starts VMs with one disk that has its node: the new disks must be made there.
// Only real volumes have the node affinity.
func TestNewDisksJoinThoseThatAreBound(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claimOn(t, ns, "first", node1)
	claimOn(t, ns, "second", node2)
	joined := vmWithBlankDisk(ns, "joined", classLocal)
	addClaimDisk(joined, "first", claimVolume("first"))
	create(t, joined)
	torn := newVM(newVMI(ns, "torn"), v1.RunStrategyAlways)
	addClaimDisk(torn, "first", claimVolume("first"))
	addClaimDisk(torn, "second", claimVolume("second"))
	create(t, torn)
	awaitSaying(t, ns, "torn", v1.VirtualMachineStatusUnschedulable, "claim first is on node node1, claim second is on node node2")
	awaitOn(t, ns, "joined", node1)
}

// TestDisksThatAreBoundAtOnceNeedNoProvisioningPod uses a class, and an annotation, that bind claims immediately:
// the real provisioner must do so before any pod exists.
func TestDisksThatAreBoundAtOnceNeedNoProvisioningPod(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	seen := watchDisks(t, ns)
	create(t, vmWithBlankDisk(ns, "class", classImmediate))
	annotated := vmWithBlankDisk(ns, "annotation", classLocal)
	annotated.Spec.DataVolumeTemplates[0].Annotations = map[string]string{layout.AnnImmediate: "true"}
	create(t, annotated)
	awaitRunning(t, ns, "class")
	awaitRunning(t, ns, "annotation")
	if n := seen.provisioningPods(); n != 0 {
		t.Errorf("there were %d provisioning pods, want none", n)
	}
}
