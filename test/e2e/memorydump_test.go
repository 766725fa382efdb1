//go:build e2e

package e2e

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheMemoryOfAGuestIsDumped dumps a guest's memory by virtctl, and finds the guest's pattern in the file.
// The steps are tested below it (internal/rules/vm/memorydump, internal/handler/concern/memorydump); only here a kubelet
// holds the claim, and the file is a real system's memory.
func TestTheMemoryOfAGuestIsDumped(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	d := dumpTest{ns: ns, folder: filepath.Join(os.Getenv("DRYDOCK_DIR"), "shared", ns+"-memory")}
	if err := os.Mkdir(d.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d.folder) }) // the cluster's folder is removed as a whole
	if err := os.WriteFile(filepath.Join(d.folder, "notes"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	source := corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/shared/" + ns + "-memory"}}
	claimOfSize(t, ns, "memory", corev1.PersistentVolumeFilesystem, source, 1<<30)
	claim(t, ns, "small", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "small"))
	claim(t, ns, "device", corev1.PersistentVolumeBlock, blockDevice(t))
	d.g = bootVM(t, newVM(onNode1(newVMI(ns, "dumped")), v1.RunStrategyAlways))
	inTurn(t,
		chapter{"what can't be is refused", d.refusals},
		chapter{"to a claim that exists", d.first},
		chapter{"again, to the same claim", d.again},
		chapter{"the claim is forgotten", d.remove},
		chapter{"to a new claim", d.newClaim},
		chapter{"a VM that has stopped", d.stopped},
	)
}

type dumpTest struct {
	ns, folder string
	g          *guest
	files      []string
}

func (d *dumpTest) refused(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := virtctl(t.Context(), append([]string{"-n", d.ns, "memory-dump"}, args...)...)
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("virtctl memory-dump %s says %q (%v), want %q", strings.Join(args, " "), out, err, want)
	}
}

func (d *dumpTest) refusals(t *testing.T) {
	size := resource.NewQuantity(claimSize, resource.BinarySI).String()
	d.refused(t, "the PVC [small] has "+size+", and a dump of the VM's memory needs 228Mi", "get", "dumped", "--claim-name=small")
	d.refused(t, "the PVC [device] has the volume mode Block", "get", "dumped", "--claim-name=device")
	d.refused(t, "the PVC [none] does not exist", "get", "dumped", "--claim-name=none")
	d.refused(t, "needs the name of a claim", "get", "dumped")
	d.refused(t, "has no memory dump to remove", "remove", "dumped")
	d.refused(t, "copy the file with 'kubectl cp'", "download", "dumped", "--output=file")
}

// pattern fills pages of the guest's memory.
const pattern = "memory-of-the-guest-"

// completed awaits the end of a dump, and that nothing of it stays with the guest.
func (d *dumpTest) completed(t *testing.T, claim string, before ...string) *v1.VirtualMachineMemoryDumpRequest {
	t.Helper()
	var r *v1.VirtualMachineMemoryDumpRequest
	awaitVM(t, d.ns, "dumped", "a memory dump in "+claim, func(vm *v1.VirtualMachine) bool {
		r = vm.Status.MemoryDumpRequest
		if r != nil && r.Phase == v1.MemoryDumpFailed {
			t.Fatalf("the dump has failed: %s", r.Message)
		}
		done := r != nil && r.Phase == v1.MemoryDumpCompleted
		for _, old := range before {
			done = done && *r.FileName != old
		}
		return done
	})
	if r.ClaimName != claim || r.FileName == nil || r.StartTimestamp == nil || r.EndTimestamp == nil || r.Message != "" {
		t.Errorf("the request is %+v", r)
	}
	vmi := objectFor(d.ns, "dumped")
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi); err != nil {
		t.Fatal(err)
	}
	if len(vmi.Spec.UtilityVolumes) > 0 || volumeStatus(vmi, claim) != nil {
		t.Errorf("the VMI still has %+v, %+v", vmi.Spec.UtilityVolumes, volumeStatus(vmi, claim))
	}
	awaitAttachmentPods(t, d.ns, "dumped", 0)
	return r
}

func (d *dumpTest) first(t *testing.T) {
	boot := d.g.bootID()
	d.g.run("yes " + pattern + " | head -c 1000000 > /tmp/pattern")
	if out := do(t, d.ns, "memory-dump", "get", "dumped", "--claim-name=memory"); out != "Successfully submitted memory dump request of VM dumped" {
		t.Errorf("virtctl says %q", out)
	}
	r := d.completed(t, "memory")
	d.parse(t, *r.FileName)
	d.files = append(d.files, *r.FileName)
	if now := d.g.bootID(); now != boot {
		t.Errorf("the guest has started again: %s, %s", boot, now)
	}
	awaitPrintable(t, d.ns, "dumped", v1.VirtualMachineStatusRunning)
}

// parse checks that the file has the guest's memory with the pattern, and that the claim has nothing else but the notes.
func (d *dumpTest) parse(t *testing.T, file string) {
	t.Helper()
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("the claim has %v", entries)
	}
	f, err := elf.Open(filepath.Join(d.folder, file))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	// A page of the file in the guest's memory begins anywhere in the pattern's line.
	page := bytes.Repeat([]byte(pattern+"\n"), 4096/len(pattern))[:4000]
	notes, memory, found := 0, uint64(0), false
	for _, p := range f.Progs {
		if p.Type == elf.PT_NOTE {
			notes++
		}
		if p.Type != elf.PT_LOAD {
			continue
		}
		memory += p.Filesz
		text := make([]byte, p.Filesz)
		if _, err := p.ReadAt(text, 0); err != nil {
			t.Fatal(err)
		}
		found = found || bytes.Contains(text, page)
	}
	if notes == 0 || memory < 128<<20 || !found {
		t.Errorf("the dump has %d notes and %d bytes of memory, with the pattern: %v", notes, memory, found)
	}
}

func (d *dumpTest) again(t *testing.T) {
	d.refused(t, "the VM dumped has a memory dump in the PVC [memory]: remove that first", "get", "dumped", "--claim-name=device")
	do(t, d.ns, "memory-dump", "get", "dumped")
	r := d.completed(t, "memory", d.files...)
	d.parse(t, *r.FileName)
}

func (d *dumpTest) remove(t *testing.T) {
	do(t, d.ns, "memory-dump", "remove", "dumped")
	awaitVM(t, d.ns, "dumped", "no memory dump", func(vm *v1.VirtualMachine) bool { return vm.Status.MemoryDumpRequest == nil })
	if entries, err := os.ReadDir(d.folder); err != nil || len(entries) != 2 {
		t.Errorf("the claim has %v (%v): the file must stay", entries, err)
	}
}

func (d *dumpTest) newClaim(t *testing.T) {
	out := do(t, d.ns, "memory-dump", "get", "dumped", "--claim-name=new", "--create-claim")
	if !strings.HasPrefix(out, "PVC "+d.ns+"/new created\nSuccessfully") {
		t.Errorf("virtctl says %q", out)
	}
	r := d.completed(t, "new")
	reader := onlyOnNode1(toolsPod(d.ns, "reader"))
	reader.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(107)), RunAsGroup: new(int64(107)), RunAsNonRoot: new(true)}
	reader.Spec.Volumes = []corev1.Volume{{Name: "dump", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"},
	}}}
	reader.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "dump", MountPath: "/dump"}}
	create(t, reader)
	if head, err := inPod(t, d.ns, "reader", "head -c 4 /dump/"+*r.FileName+" | tail -c 3; ls /dump"); err != nil || !strings.HasPrefix(head, "ELF") || strings.Contains(head, ".partial") {
		t.Errorf("a pod reads %q (%v)", head, err)
	}
	do(t, d.ns, "memory-dump", "remove", "dumped")
	awaitVM(t, d.ns, "dumped", "no memory dump", func(vm *v1.VirtualMachine) bool { return vm.Status.MemoryDumpRequest == nil })
}

func (d *dumpTest) stopped(t *testing.T) {
	do(t, d.ns, "stop", "dumped")
	awaitPrintable(t, d.ns, "dumped", v1.VirtualMachineStatusStopped)
	d.refused(t, "VM is not running", "get", "dumped", "--claim-name=memory")
}

// onlyOnNode1 pins a pod to the node that has the claim.
func onlyOnNode1(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	return pod
}
