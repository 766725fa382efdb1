package machine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/qcow2"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/test/shipped"
)

// firmwareDir has UEFI's files in the image.
var firmwareDir = filepath.Dir(layout.UEFICode)

// host stands for a pod: its folder has the paths of a launcher's container.
type host struct {
	t   *testing.T
	dir string
	// variables is the file of kept UEFI variables, for hosts that share a claim.
	variables string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "machine") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t: t, dir: dir}
	for _, path := range []string{layout.PrivateDir, layout.EphemeralDir, layout.KernelBootDir + "/boot"} {
		if err := os.MkdirAll(h.path(path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *host) path(text string) string {
	text = strings.ReplaceAll(text, layout.PrivateDir, h.dir+"/kubevirt")
	text = strings.ReplaceAll(text, firmwareDir, shipped.File(h.t, firmwareDir))
	return strings.ReplaceAll(text, layout.VolumeDevicesDir, h.dir+"/dev-kubevirt-volumes")
}

// input makes the files of a machine's images.
func (h *host) input(vmi *v1.VirtualMachineInstance) Input {
	h.t.Helper()
	in := prepared(vmi)
	for name, image := range in.Images {
		image.BlockDevice = false
		if strings.HasPrefix(image.Source, "/usr/") { // the UEFI variables
			h.create(image.Overlay, qcow2.Image{VirtualSize: 540672, Backing: h.path(image.Source), BackingFormat: "raw"})
			in.Images[name] = image
			continue
		}
		if name == nvramImage { // the kept ones
			h.keepVariables(image.Source)
			in.Images[name] = image
			continue
		}
		if image.Source != "" {
			image.SourceFormat = "qcow2"
			h.create(image.Source, qcow2.Image{VirtualSize: 1 << 20})
		}
		if image.Overlay != "" {
			h.create(image.Overlay, qcow2.Image{VirtualSize: 1 << 20})
		}
		in.Images[name] = image
	}
	for i := range vmi.Spec.Volumes {
		if v := &vmi.Spec.Volumes[i]; isoVolume(v) {
			h.create(layout.ISOFile(v.Name), qcow2.Image{VirtualSize: 1 << 20})
		}
	}
	if told := DownwardMetrics(&vmi.Spec, ""); told != nil && told.Disk != "" {
		h.create(told.Disk, qcow2.Image{VirtualSize: 1 << 20})
	}
	if text := Ignition(vmi); text != "" {
		if err := os.WriteFile(h.path(layout.IgnitionFile()), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	return in
}

func (h *host) create(path string, image qcow2.Image) {
	h.t.Helper()
	path = h.path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	if err := qcow2.Create(f, image); err != nil {
		h.t.Fatal(err)
	}
}

// keepVariables makes the kept UEFI variables, unless they exist.
func (h *host) keepVariables(path string) {
	h.t.Helper()
	path = h.path(path)
	if h.variables == "" {
		h.variables = filepath.Join(h.t.TempDir(), "variables")
	}
	template, err := os.ReadFile(h.path(ovmfVars))
	if _, missing := os.Stat(h.variables); err == nil && missing != nil {
		err = os.WriteFile(h.variables, template, 0o600)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.Symlink(h.variables, path)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// withoutTaps gives a machine QEMU's own network, which needs no rights.
func withoutTaps(m *Machine) *Machine {
	for i, netdev := range m.Netdevs {
		m.Netdevs[i] = Properties{"type": "user", "id": netdev["id"]}
	}
	return m
}

// start runs QEMU with a stopped guest until the test ends.
func (h *host) start(m *Machine) *qmp.Client {
	h.t.Helper()
	var args []string
	for _, a := range withoutTaps(m).Args() {
		args = append(args, h.path(a))
	}
	if slices.Contains(args, "-tpmdev") {
		h.startTPM()
	}
	var stderr bytes.Buffer
	cmd := exec.Command(shipped.Program(h.t, "qemu-system-x86_64"), append(args, "-S")...)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatalf("starting QEMU: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	ctx, cancel := context.WithTimeout(h.t.Context(), 4*time.Minute)
	defer cancel()
	for {
		client, err := qmp.Dial(ctx, h.path(layout.Socket(layout.QMPSocket)), nil)
		if err == nil {
			h.t.Cleanup(func() { _ = client.Close() })
			return client
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ended:
			h.t.Fatalf("QEMU refuses the machine: %s", stderr.String())
		case <-ctx.Done():
			h.t.Fatalf("connecting to QEMU: %v", err)
		}
	}
}

// startTPM runs swtpm for a guest with a TPM, as virt-launcher does, until the test ends.
func (h *host) startTPM() {
	h.t.Helper()
	path := h.path(layout.Socket(layout.TPMSocket))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		h.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	h.t.Cleanup(func() { _ = listener.Close() })
	socket, err := listener.File()
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = socket.Close() })
	cmd := exec.Command(shipped.Program(h.t, "swtpm"), "socket", "--tpm2", "--terminate", "--tpmstate", "dir="+h.t.TempDir(), "--ctrl", "type=unixio,fd=3")
	cmd.ExtraFiles = []*os.File{socket}
	if err := cmd.Start(); err != nil {
		h.t.Fatalf("starting swtpm: %v", err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// adapted is a VMI of testdata that this test's host can run: without a block device, hugepages, or a kernel.
func adapted(t *testing.T, file string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := readVMI(t, file)
	domain := &vmi.Spec.Domain
	domain.Devices.Disks = slices.DeleteFunc(domain.Devices.Disks, func(d v1.Disk) bool { return d.LUN != nil })
	if domain.Memory != nil {
		domain.Memory.Hugepages = nil
	}
	if domain.Firmware != nil {
		domain.Firmware.KernelBoot = nil
	}
	return vmi
}

func TestQEMUTakesEveryMachine(t *testing.T) {
	for _, file := range vmiFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			vmi := adapted(t, file)
			h := newHost(t)
			m, err := Build(h.input(vmi))
			if err != nil {
				t.Fatal(err)
			}
			client := h.start(m)
			for _, d := range m.Devices {
				var properties []struct{ Name string }
				path := map[string]any{"path": fmt.Sprintf("/machine/peripheral/%s", d["id"])}
				if err := client.Execute(t.Context(), "qom-list", path, &properties); err != nil || len(properties) == 0 {
					t.Errorf("QEMU does not have %s: %v", d["id"], err)
				}
			}
		})
	}
}

func TestWhatIsPluggedIntoARunningMachineSitsWhereTheNextStartPutsIt(t *testing.T) {
	vmi := adapted(t, "testdata/smallest.yaml")
	h := newHost(t)
	m, err := Build(h.input(vmi))
	if err != nil {
		t.Fatal(err)
	}
	client := h.start(m)
	devices := &vmi.Spec.Domain.Devices
	devices.Disks = append(devices.Disks,
		v1.Disk{Name: "plugged", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		v1.Disk{Name: "plugged2", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
	devices.Interfaces = append(devices.Interfaces, v1.Interface{Name: "plugged"})
	for _, name := range []string{"plugged", "plugged2"} {
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: name}}})
	}
	in := h.input(vmi)
	next, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	plugged := 0
	for _, section := range []struct {
		command     string
		before, now []Properties
	}{
		{"blockdev-add", m.Blockdevs, next.Blockdevs},
		{"netdev_add", m.Netdevs, withoutTaps(next).Netdevs},
		{"device_add", m.Devices, next.Devices},
	} {
		for _, p := range section.now {
			if slices.ContainsFunc(section.before, func(old Properties) bool { return reflect.DeepEqual(old, p) }) {
				continue
			}
			plugged++
			if filename, ok := p["filename"].(string); ok {
				p["filename"] = h.path(filename)
			}
			if err := client.Execute(t.Context(), section.command, p, nil); err != nil {
				t.Errorf("%s: %v", section.command, err)
			}
		}
	}
	if plugged != 8 { // two disks with two nodes and a device each, and an interface with two
		t.Errorf("%d things were plugged", plugged)
	}
}

func TestAStartWithManyDevicesWorks(t *testing.T) {
	vmi := adapted(t, "testdata/smallest.yaml")
	devices := &vmi.Spec.Domain.Devices
	for i := range 20 {
		name := fmt.Sprintf("more%d", i)
		devices.Disks = append(devices.Disks, v1.Disk{Name: name,
			DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: []v1.DiskBus{v1.DiskBusVirtio, v1.DiskBusSATA}[i%2]}}})
		devices.Interfaces = append(devices.Interfaces, v1.Interface{Name: name})
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			EmptyDisk: &v1.EmptyDiskSource{}}})
	}
	h := newHost(t)
	in := h.input(vmi)
	for name, image := range in.Images {
		in.Images[name] = launch.PreparedImage{Name: name, Source: image.Source, SourceFormat: image.SourceFormat, Overlay: image.Overlay}
	}
	m, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	h.start(m)
}
