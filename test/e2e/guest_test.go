//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/test/console"
)

// guestMemory is enough for the test guest, and small so that many fit on a node.
const guestMemory = "128Mi"

// Each test changes the VMI before creating it.
func newVMI(namespace, name string) *v1.VirtualMachineInstance {
	memory := resource.MustParse(guestMemory)
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{
				Memory: &v1.Memory{Guest: &memory},
				Devices: v1.Devices{Disks: []v1.Disk{{
					Name:       "root",
					DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}},
				}}},
			},
			Volumes: []v1.Volume{{
				Name: "root",
				VolumeSource: v1.VolumeSource{
					ContainerDisk: &v1.ContainerDiskSource{Image: guestImage},
				},
			}},
			TerminationGracePeriodSeconds: new(int64(20)),
		},
	}
}

func addDisk(vmi *v1.VirtualMachineInstance, disk v1.Disk, source v1.VolumeSource) {
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, disk)
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: disk.Name, VolumeSource: source})
}

func newVM(vmi *v1.VirtualMachineInstance, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: vmi.Name},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &v1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: vmi.Labels},
				Spec:       vmi.Spec,
			},
		},
	}
}

// awaitVMI waits until seen accepts the VMI.
func awaitVMI(t *testing.T, namespace, name, what string, seen func(*v1.VirtualMachineInstance) bool) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return await(t, vmi, &v1.VirtualMachineInstanceList{}, what, seen)
}

// awaitVM waits until seen accepts the VM.
func awaitVM(t *testing.T, namespace, name, what string, seen func(*v1.VirtualMachine) bool) {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	await(t, vm, &v1.VirtualMachineList{}, what, seen)
}

func awaitRunning(t *testing.T, namespace, name string) *v1.VirtualMachineInstance {
	t.Helper()
	return awaitVMI(t, namespace, name, "phase Running", func(vmi *v1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == v1.Running
	})
}

func awaitPrintable(t *testing.T, namespace, name string, status v1.VirtualMachinePrintableStatus) {
	t.Helper()
	awaitVM(t, namespace, name, "status "+string(status), func(vm *v1.VirtualMachine) bool {
		return vm.Status.PrintableStatus == status
	})
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := cluster.client.Create(t.Context(), obj); err != nil {
		t.Fatalf("creating %s: %v", obj.GetName(), err)
	}
}

type guest struct {
	t         *testing.T
	namespace string
	name      string
	console   *console.Console
}

func boot(t *testing.T, vmi *v1.VirtualMachineInstance) *guest {
	t.Helper()
	create(t, vmi)
	awaitRunning(t, vmi.Namespace, vmi.Name)
	return login(t, vmi.Namespace, vmi.Name)
}

// The VM starts by itself.
func bootVM(t *testing.T, vm *v1.VirtualMachine) *guest {
	t.Helper()
	create(t, vm)
	awaitPrintable(t, vm.Namespace, vm.Name, v1.VirtualMachineStatusRunning)
	return login(t, vm.Namespace, vm.Name)
}

func login(t *testing.T, namespace, name string) *guest {
	t.Helper()
	g := &guest{t: t, namespace: namespace, name: name, console: openConsole(t, namespace, name)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.console.Login(ctx); err != nil {
		t.Fatalf("logging in to %s on its serial console: %v", name, err)
	}
	return g
}

// The command must succeed.
func (g *guest) run(command string) string {
	g.t.Helper()
	out, err := g.try(command)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

func (g *guest) try(command string) (string, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	out, exit, err := g.console.Run(ctx, command)
	if err != nil {
		return "", fmt.Errorf("running %q in %s: %w", command, g.name, err)
	}
	if exit != 0 {
		return "", fmt.Errorf("%q in %s ended with code %d: %s", command, g.name, exit, out)
	}
	return strings.TrimSpace(out), nil
}

// tell runs a command in the guest without waiting for its end (poweroff).
func (g *guest) tell(command string) {
	g.t.Helper()
	if err := g.console.Send(command + "\n"); err != nil {
		g.t.Fatalf("typing %q in %s: %v", command, g.name, err)
	}
}

func (g *guest) expect(pattern string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	if _, err := g.console.Expect(ctx, regexp.MustCompile(pattern)); err != nil {
		g.t.Fatalf("waiting for %q on the console of %s: %v", pattern, g.name, err)
	}
}

// uptime returns the guest's own uptime.
func (g *guest) uptime() time.Duration {
	g.t.Helper()
	seconds, err := strconv.ParseFloat(strings.Fields(g.run("cat /proc/uptime"))[0], 64)
	if err != nil {
		g.t.Fatalf("reading the uptime of %s: %v", g.name, err)
	}
	return time.Duration(seconds * float64(time.Second))
}

func (g *guest) bootID() string {
	g.t.Helper()
	return g.run("cat /proc/sys/kernel/random/boot_id")
}

type disk struct {
	name   string
	bytes  int64
	serial string
}

func (g *guest) diskBySerial(serial string) disk {
	g.t.Helper()
	var found disk
	eventually(g.t, fmt.Sprintf("a disk with serial %q in the guest %s", serial, g.name), func(context.Context) error {
		out, err := g.try("guestinfo disks")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) >= 3 && f[2] == serial {
				found.name, found.serial = f[0], f[2]
				found.bytes, err = strconv.ParseInt(f[1], 10, 64)
				return err
			}
		}
		return fmt.Errorf("it has:\n%s", out)
	})
	return found
}

// The pod has busybox's network tools.
func toolsPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name:            "tools",
				Image:           toolsImage,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Command:         []string{"sleep", "3600"},
			}},
		},
	}
}
