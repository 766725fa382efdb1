//go:build e2e

package e2e

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/hotplug/invariant"
	"drydock.dev/drydock/test/follow"
)

// Long runs ask for more than every run can afford.
var (
	soakFor = flag.Duration("hotplug.for", 2*time.Minute, "how long a disk in use is watched while others come and go")
	cycles  = flag.Int("hotplug.cycles", 20, "how often one volume comes and goes")
)

// deviceAdd is what QEMU and a Linux guest need from device_add until the disk is
// listed, measured without Kubernetes.
const deviceAdd = 160 * time.Millisecond

// TestADiskInUseIsNeverDropped has a guest write and read vol-a with direct I/O
// all the time, while other volumes come and go in random order, one never
// gets its claim, attachment pods are taken away by hand, and components are
// killed. A watch sees to the holders' invariants. Not parallel: it breaks what
// the other tests stand on.
func TestADiskInUseIsNeverDropped(t *testing.T) {
	ns := newNamespace(t)
	names := []string{"vol-a", "vol-b", "vol-c", "vol-d", "vol-e"}
	for _, name := range names {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	create(t, unboundClaim(ns, "never"))
	g := bootVM(t, newVM(onNode1(newVMI(ns, "soaked")), v1.RunStrategyAlways))
	history := follow.Holders(t, cluster.client, ns, "soaked")
	do(t, ns, "addvolume", "soaked", "--volume-name=vol-a")
	g.gets("vol-a")
	g.run("disksoak " + g.device("vol-a") + " >/tmp/soak 2>&1 & echo $! >/tmp/soak.pid")
	do(t, ns, "addvolume", "soaked", "--volume-name=never")

	kills := []func(*testing.T) []int{
		componentPIDs("controller"), componentPIDs("handler"), nodePIDs("kubelet"), nodePIDs("containerd"),
	}
	plugged, began := map[string]bool{}, time.Now()
	for round := 0; time.Since(began) < *soakFor; round++ {
		name := names[1+rand.IntN(len(names)-1)]
		verb := "addvolume"
		if plugged[name] {
			verb = "removevolume"
		}
		// A part that was just killed may not answer: then nothing has changed.
		if _, err := virtctl(t.Context(), "-n", ns, verb, "soaked", "--volume-name="+name); err == nil {
			plugged[name] = !plugged[name]
		}
		switch round % 8 {
		case 5:
			for _, pid := range kills[round/8%len(kills)](t) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Logf("killing %d: %v", pid, err)
				}
			}
		case 2:
			takeHolder(t, history, ns, "soaked")
		}
		time.Sleep(time.Duration(500+rand.IntN(2000)) * time.Millisecond)
	}
	g = login(t, ns, "soaked") // the console ended with a virt-handler that was killed
	for name, want := range plugged {
		if want {
			g.gets(name)
		} else {
			g.loses(name)
		}
	}
	g.run("kill $(cat /tmp/soak.pid); while kill -0 $(cat /tmp/soak.pid) 2>/dev/null; do sleep 0.1; done")
	told := g.run("cat /tmp/soak")
	sum := regexp.MustCompile(`writes=(\d+) errors=(\d+) gaps=\d+ longest=(\d+)ms`).FindStringSubmatch(told)
	if sum == nil || sum[2] != "0" {
		t.Fatalf("the guest says of its disk:\n%s", told)
	}
	t.Logf("figure hotplug: %s writes in %v, longest %s ms, no error", sum[1], time.Since(began).Round(time.Second), sum[3])
	awaitHolders(t, ns, "soaked", 5)
}

// takeHolder deletes one of a VMI's attachment pods, as only somebody who may
// do anything can: an eviction is refused.
func takeHolder(t *testing.T, history *invariant.History, namespace, name string) {
	t.Helper()
	pods, err := holders(t.Context(), namespace, name)
	if err != nil || len(pods) == 0 {
		return
	}
	pod := pods[rand.IntN(len(pods))]
	history.Rob(string(pod.UID))
	if err := cluster.client.Delete(t.Context(), &pod); client.IgnoreNotFound(err) != nil {
		t.Errorf("taking the attachment pod %s away: %v", pod.Name, err)
	}
}

// unboundClaim is a claim that no storage is ever found for.
func unboundClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("no-such-class"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)}},
		},
	}
}

// TestPluggingLeaksNothing has one volume come and go, over and over: neither
// QEMU nor virt-handler keeps a descriptor or memory of it, and it takes no longer
// in the end. The last set that was asked for is what the guest has.
func TestPluggingLeaksNothing(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	claim(t, ns, "vol", corev1.PersistentVolumeFilesystem, folderOnNode1(ns, "vol"))
	bare := barePod(t, ns, "vol")
	g := bootVM(t, newVM(onNode1(newVMI(ns, "cycled")), v1.RunStrategyAlways))
	vmi := awaitRunning(t, ns, "cycled")
	qemu := processes(t, func(_ int, args []string) bool {
		return strings.HasPrefix(filepath.Base(args[0]), "qemu-system") && strings.Contains(strings.Join(args, " "), string(vmi.Spec.Domain.Firmware.UUID))
	})
	if len(qemu) != 1 {
		t.Fatalf("%d QEMUs run the guest", len(qemu))
	}
	var came []time.Duration
	descriptors := 0
	for cycle := range *cycles {
		began := time.Now()
		do(t, ns, "addvolume", "cycled", "--volume-name=vol")
		awaitVMI(t, ns, "cycled", "vol Ready", func(vmi *v1.VirtualMachineInstance) bool {
			s := volumeStatus(vmi, "vol")
			return s != nil && s.Phase == v1.VolumeReady
		})
		came = append(came, time.Since(began))
		if cycle == 0 {
			g.gets("vol")
		}
		do(t, ns, "removevolume", "cycled", "--volume-name=vol")
		g.loses("vol")
		if now := openFiles(t, qemu[0]); cycle == 0 {
			descriptors = now
		} else if now > descriptors {
			t.Fatalf("after %d cycles QEMU has %d files open, after one it had %d", cycle+1, now, descriptors)
		}
	}
	slices.Sort(came)
	median := came[len(came)/2]
	t.Logf("figure hotplug: add to Ready %v (median of %d, longest %v), bare pod %v, ratio %.2f",
		median.Round(time.Millisecond), len(came), came[len(came)-1].Round(time.Millisecond), bare.Round(time.Millisecond),
		float64(median)/float64(bare+deviceAdd))
}

// barePod is the time from the creation of a pod with the claim to its running.
func barePod(t *testing.T, namespace, claimName string) time.Duration {
	t.Helper()
	pod := toolsPod(namespace, "bare")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "vol", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "vol", MountPath: "/vol"}}
	began := time.Now()
	create(t, pod)
	await(t, pod, &corev1.PodList{}, "phase Running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	took := time.Since(began)
	deleteObject(t, pod)
	awaitGone(t, pod)
	return took
}

func openFiles(t *testing.T, pid int) int {
	t.Helper()
	files, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestTheLastSetThatWasAskedForIsThere changes a template every second, faster
// than pods start: nothing starves, and in the end the guest has what was asked
// for last. The node is cordoned all the while.
func TestTheLastSetThatWasAskedForIsThere(t *testing.T) {
	ns := newNamespace(t)
	names := []string{"vol-a", "vol-b", "vol-c"}
	for _, name := range names {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	g := bootVM(t, newVM(onNode1(newVMI(ns, "busy")), v1.RunStrategyAlways))
	cordon(t, "node1")
	has := map[string]bool{}
	for range 20 {
		name := names[rand.IntN(len(names))]
		verb := "addvolume"
		if has[name] {
			verb = "removevolume"
		}
		do(t, ns, verb, "busy", "--volume-name="+name, "--persist")
		has[name] = !has[name]
		time.Sleep(time.Second)
	}
	for _, name := range names {
		if has[name] {
			g.gets(name)
		} else {
			g.loses(name)
		}
	}
}

func cordon(t *testing.T, node string) {
	t.Helper()
	if out, err := kubectl(t.Context(), "cordon", node); err != nil {
		t.Fatalf("cordoning %s: %v\n%s", node, err, out)
	}
	t.Cleanup(func() {
		if out, err := kubectl(context.Background(), "uncordon", node); err != nil {
			t.Errorf("uncordoning %s: %v\n%s", node, err, out)
		}
	})
}
