package clientgo

import (
	"context"
	"net"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	kvcorev1 "kubevirt.io/client-go/kubevirt/typed/core/v1"

	"drydock.dev/drydock/test/console"
)

const guestImage = "drydock.dev/test-guest:devel"

// ready is the line that the guest prints once its userland is up.
var ready = regexp.MustCompile(`drydock guest ready: \S+ uuid=\S+\n`)

func contains(text, part string) bool { return strings.Contains(text, part) }

func guestSpec(name string) v1.VirtualMachineInstanceSpec {
	memory := resource.MustParse("128Mi")
	spec := v1.VirtualMachineInstanceSpec{Networks: []v1.Network{*v1.DefaultPodNetwork()}}
	spec.Domain.Memory = &v1.Memory{Guest: &memory}
	spec.Domain.Devices.Interfaces = []v1.Interface{*v1.DefaultMasqueradeNetworkInterface()}
	for volume, source := range map[string]v1.VolumeSource{
		"root": {ContainerDisk: &v1.ContainerDiskSource{Image: guestImage}},
		"init": {CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\nhostname: " + name + "\n"}},
	} {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: volume, VolumeSource: source})
		disk := v1.Disk{Name: volume, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}
		if volume == "root" {
			disk.BootOrder = new(uint)
			*disk.BootOrder = 1
		}
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, disk)
	}
	return spec
}

func newVM(name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template:    &v1.VirtualMachineInstanceTemplateSpec{Spec: guestSpec(name)},
		},
	}
}

func create(t *testing.T, namespace string, vm *v1.VirtualMachine) *v1.VirtualMachine {
	t.Helper()
	created, err := virt.VirtualMachine(namespace).Create(t.Context(), vm, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("creating VM %s: %v", vm.Name, err)
	}
	return created
}

func createVM(t *testing.T, namespace, name string, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	t.Helper()
	return create(t, namespace, newVM(name, strategy))
}

func runs(vmi *v1.VirtualMachineInstance) bool { return vmi.Status.Phase == v1.Running }

func hasCondition(vmi *v1.VirtualMachineInstance, kind v1.VirtualMachineInstanceConditionType) bool {
	for _, condition := range vmi.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == "True"
		}
	}
	return false
}

func printable(status v1.VirtualMachinePrintableStatus) func(*v1.VirtualMachine) bool {
	return func(vm *v1.VirtualMachine) bool { return vm.Status.PrintableStatus == status }
}

type terminal struct {
	*console.Console
	t *testing.T
}

// openConsole opens a console through the client.
func openConsole(t *testing.T, namespace, name string) terminal {
	t.Helper()
	options := &kvcorev1.SerialConsoleOptions{ConnectionTimeout: patience}
	stream, err := virt.VirtualMachineInstance(namespace).SerialConsole(name, options)
	if err != nil {
		t.Fatalf("opening the console of VMI %s: %v", name, err)
	}
	conn := stream.AsConn()
	closeWith(t, conn)
	return terminal{console.New(conn), t}
}

// closeWith closes a connection at the end of its test. It may have ended by itself.
func closeWith(t *testing.T, conn net.Conn) { t.Cleanup(func() { _ = conn.Close() }) }

// The console must be opened before the guest boots: it shows no earlier output.
func (c terminal) awaitReady() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if _, err := c.Expect(ctx, ready); err != nil {
		c.t.Fatalf("waiting for the guest to be ready: %v\nthe console says:\n%s", err, c.Transcript())
	}
}

// identity returns the guest's host name, and its UUID, which only root can read.
func (c terminal) identity() (hostname, uuid string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.Login(ctx); err != nil {
		c.t.Fatalf("logging in as root: %v\nthe console says:\n%s", err, c.Transcript())
	}
	hostname, uuid = c.run("hostname"), c.run("guestinfo uuid")
	if err := c.Logout(ctx); err != nil {
		c.t.Fatalf("logging out: %v\nthe console says:\n%s", err, c.Transcript())
	}
	return hostname, uuid
}

// login logs in as the guest's unprivileged user.
func (c terminal) login() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.LoginAs(ctx, "guest", "guest"); err != nil {
		c.t.Fatalf("logging in: %v\nthe console says:\n%s", err, c.Transcript())
	}
}

func (c terminal) run(command string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	output, status, err := c.Run(ctx, command)
	if err != nil || status != 0 {
		c.t.Fatalf("running %q in the guest: status %d, %v\nthe console says:\n%s", command, status, err, c.Transcript())
	}
	return strings.TrimSpace(output)
}

func (c terminal) bootID() string { return c.run("cat /proc/sys/kernel/random/boot_id") }
