//go:build e2e

package e2e

import (
	"context"
	"flag"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/hotplug/invariant"
	"drydock.dev/drydock/test/hotplugwatch"
)

// A long run needs more rounds than every run can afford: see `make soak`.
var (
	soakFor    = flag.Duration("hotplug.for", 20*time.Second, "how long a disk in use is watched while others are plugged and unplugged")
	changesFor = flag.Duration("hotplug.changes", 20*time.Second, "how long a template is changed every second")
)

// TestADiskInUseIsNeverDropped lets a guest write and read vol-a with direct I/O while other volumes are plugged and
// unplugged in random order (files, devices, local storage that the attachment pod binds). One volume never gets its
// claim, one can't be mounted, attachment pods are deleted, and components are killed. A watch checks the invariants of
// the attachment pods. When all volumes are gone the nodes must be as before. Not parallel: it kills parts that other
// tests need. internal/rules/hotplug explores the decisions; only here the kernel and the kubelet keep state.
func TestADiskInUseIsNeverDropped(t *testing.T) {
	ns := newNamespace(t)
	comeAndGo := soakedClaims(t, ns)
	g := bootVM(t, newVM(onNode1(newVMI(ns, "soaked")), v1.RunStrategyAlways))
	vmi := awaitRunning(t, ns, "soaked")
	before := tracesOf(t, vmi)
	history := hotplugwatch.AttachmentPods(t, cluster.client, ns, "soaked")
	do(t, ns, "addvolume", "soaked", "--volume-name=vol-a")
	g.gets("vol-a")
	g.run("disksoak " + g.device("vol-a") + " >/tmp/soak 2>&1 & echo $! >/tmp/soak.pid")
	do(t, ns, "addvolume", "soaked", "--volume-name=unbound")
	do(t, ns, "addvolume", "soaked", "--volume-name=missing")
	seen := tracesOf(t, vmi).moreThan(before)
	t.Logf("a volume that is plugged leaves\n%s", strings.Join(seen, "\n"))
	if len(seen) == 0 || strings.Contains(strings.Join(seen, "\n"), "of the launcher: ") {
		t.Error("it should be seen on the node, and not in the launcher's pod")
	}

	began := time.Now()
	plugged := unrest(t, history, ns, comeAndGo)
	g = login(t, ns, "soaked") // the console ended with the killed virt-handler
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
	// Four, and one for the volume that can't be mounted.
	awaitAttachmentPods(t, ns, "soaked", 5)

	plugged["vol-a"], plugged["unbound"], plugged["missing"] = true, true, true
	for name, is := range plugged {
		if is {
			do(t, ns, "removevolume", "soaked", "--volume-name="+name)
		}
	}
	for name := range plugged {
		g.loses(name)
	}
	awaitAttachmentPods(t, ns, "soaked", 0)
	awaitNoTraces(t, vmi, before)
}

func soakedClaims(t *testing.T, ns string) (comeAndGo []string) {
	t.Helper()
	for _, name := range []string{"vol-a", "vol-b", "vol-c"} {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	claim(t, ns, "vol-d", corev1.PersistentVolumeBlock, blockDevice(t))
	// A small file system reserves more than a tenth for itself.
	local := claimOfClass(ns, "vol-e", classLocal, corev1.PersistentVolumeFilesystem)
	local.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("640Mi")
	create(t, local)
	create(t, claimOfClass(ns, "vol-f", classLocal, corev1.PersistentVolumeBlock))
	create(t, claimOfClass(ns, "unbound", "no-such-class", corev1.PersistentVolumeFilesystem))
	claim(t, ns, "missing", corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: "/srv/" + ns + "-nothing-here", Type: new(corev1.HostPathDirectory),
	}})
	return []string{"vol-b", "vol-c", "vol-d", "vol-e", "vol-f"}
}

// unrest plugs and unplugs volumes for the configured time, deletes attachment pods and kills components, each at least
// once. It returns the volumes that are plugged in the end.
func unrest(t *testing.T, history *invariant.History, ns string, names []string) map[string]bool {
	t.Helper()
	kills := []func(*testing.T) []int{
		componentPIDs("controller"), componentPIDs("handler"), nodePIDs("kubelet"), nodePIDs("containerd"),
	}
	plugged, began := map[string]bool{}, time.Now()
	// A short run kills one component, and each run begins with another.
	first := rand.IntN(len(kills))
	for round := 0; round < 8 || time.Since(began) < *soakFor; round++ {
		name := names[rand.IntN(len(names))]
		verb := "addvolume"
		if plugged[name] {
			verb = "removevolume"
		}
		// A part that was just killed may have done the request without answering.
		_, err := virtctl(t.Context(), "-n", ns, verb, "soaked", "--volume-name="+name)
		if plugged[name] = hasVolume(t, ns, "soaked", name); err == nil && plugged[name] != (verb == "addvolume") {
			t.Errorf("%s of %s was accepted, and the VMI names it: %v", verb, name, plugged[name])
		}
		switch round % 8 {
		case 5:
			for _, pid := range kills[(first+round/8)%len(kills)](t) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Logf("killing %d: %v", pid, err)
				}
			}
		case 2:
			deleteAttachmentPod(t, history, ns, "soaked")
		}
		time.Sleep(time.Duration(500+rand.IntN(2000)) * time.Millisecond)
	}
	return plugged
}

func hasVolume(t *testing.T, ns, name, volume string) bool {
	t.Helper()
	has := false
	eventually(t, "the VMI to be read", func(ctx context.Context) error {
		vmi := &v1.VirtualMachineInstance{}
		err := cluster.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, vmi)
		has = slices.ContainsFunc(vmi.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
		return err
	})
	return has
}

// Only an administrator can delete the pod; an eviction is refused.
func deleteAttachmentPod(t *testing.T, history *invariant.History, namespace, name string) {
	t.Helper()
	pods, err := attachmentPods(t.Context(), namespace, name)
	if err != nil || len(pods) == 0 {
		return
	}
	pod := pods[rand.IntN(len(pods))]
	history.DeleteExternally(string(pod.UID))
	if err := cluster.client.Delete(t.Context(), &pod); client.IgnoreNotFound(err) != nil {
		t.Errorf("taking the attachment pod %s away: %v", pod.Name, err)
	}
}

// claimOfClass returns a claim that is bound when a pod uses it, or never.
func claimOfClass(namespace, name, class string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeMode:       &mode,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)}},
		},
	}
}

// TestTheLastSetThatWasAskedForIsThere changes a template every second, faster than real pods start. The first
// edit's volumes must not starve, and in the end the guest must have the last's.
func TestTheLastSetThatWasAskedForIsThere(t *testing.T) {
	t.Parallel()
	onlyInTestAll(t)
	ns := newNamespace(t)
	names := []string{"vol-a", "vol-b", "vol-c"}
	for _, name := range append(names, "patient") {
		claim(t, ns, name, corev1.PersistentVolumeFilesystem, folderOnNode1(ns, name))
	}
	g := bootVM(t, newVM(onNode1(newVMI(ns, "busy")), v1.RunStrategyAlways))
	history := hotplugwatch.AttachmentPods(t, cluster.client, ns, "busy")
	do(t, ns, "addvolume", "busy", "--volume-name=patient", "--persist")
	has := map[string]bool{}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	changes := 0
	for began := time.Now(); time.Since(began) < *changesFor || !isPlugged(t, ns, "busy", "patient"); <-second.C {
		if time.Since(began) > *changesFor+patience {
			t.Fatalf("what was asked for %v ago is not there while other things are asked for", time.Since(began))
		}
		name := names[rand.IntN(len(names))]
		verb := "addvolume"
		if has[name] {
			verb = "removevolume"
		}
		do(t, ns, verb, "busy", "--volume-name="+name, "--persist")
		has[name] = !has[name]
		changes++
	}
	began := time.Now()
	for _, name := range names {
		if has[name] {
			g.gets(name)
		} else {
			g.loses(name)
		}
	}
	ever, _ := history.Pods()
	t.Logf("figure hotplug: %d changes in %v, %d attachment pods, settled %v after the last", changes, *changesFor, ever, time.Since(began).Round(time.Millisecond))
}

func isPlugged(t *testing.T, namespace, name, volume string) bool {
	t.Helper()
	var vmi v1.VirtualMachineInstance
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &vmi); err != nil {
		t.Fatalf("reading the VMI %s: %v", name, err)
	}
	s := volumeStatus(&vmi, volume)
	return s != nil && s.Phase == v1.VolumeReady
}
