package disk

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/machine"
)

func vmi(volumes ...v1.Volume) *v1.VirtualMachineInstance {
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.example"},
		Spec: v1.VirtualMachineInstanceSpec{
			Volumes: volumes,
			Domain:  v1.DomainSpec{Firmware: &v1.Firmware{UUID: "0b4e8c1a-1111-4222-8333-444455556666"}},
		},
	}
}

// container is a folder that plays a container's file system.
type container struct {
	path string
	pod  Pod
}

func newContainer(t *testing.T) *container {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	path := t.TempDir()
	root, err := podpath.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(root.Close)
	c := &container{path: path, pod: Pod{Root: root, User: os.Getuid()}}
	c.pod.Capacity = func(context.Context, string) (int64, error) { return 0, errors.New("no claim was expected") }
	// As in the launcher's image, where /var/run is a link.
	c.mkdir(t, "/run")
	c.mkdir(t, "/var")
	if err := os.Symlink("/run", filepath.Join(path, "var/run")); err != nil {
		t.Fatal(err)
	}
	c.mkdir(t, "/run/"+strings.TrimPrefix(layout.EphemeralDir, "/var/run/"))
	return c
}

func (c *container) real(path string) string {
	return filepath.Join(c.path, strings.Replace(path, "/var/run/", "/run/", 1))
}

func (c *container) mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(c.real(path), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (c *container) write(t *testing.T, path, data string) {
	t.Helper()
	c.mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(c.real(path), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// device makes a device node for a device that no driver has.
func (c *container) device(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a device node")
	}
	c.mkdir(t, filepath.Dir(path))
	c.node(t, path, unix.S_IFBLK)
}

// node makes a device node of a kind. Nobody has the device.
func (c *container) node(t *testing.T, path string, kind uint32) {
	t.Helper()
	if err := unix.Mknod(c.real(path), kind|0o600, int(unix.Mkdev(0x1ff, 7))); err != nil {
		t.Fatal(err)
	}
}

// kubeletVolume writes a volume as the kubelet's atomic writer does.
func (c *container) kubeletVolume(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		c.write(t, filepath.Join(dir, "..2026_11_21", name), data)
		first, _, _ := strings.Cut(name, "/")
		link := c.real(filepath.Join(dir, first))
		if _, err := os.Lstat(link); err == nil {
			continue
		}
		if err := os.Symlink("..data/"+first, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..2026_11_21", c.real(filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
}

func (c *container) image(t *testing.T, volume string) (string, map[string]string) {
	t.Helper()
	f, err := os.Open(c.real(layout.ISOFile(volume)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("the image's mode is %v", info.Mode())
	}
	image, err := iso9660.Read(file.New(f, true), info.Size(), 0, 2048)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	readImage(t, image, ".", files)
	return strings.TrimRight(image.Label(), " \x00"), files
}

func readImage(t *testing.T, image *iso9660.FileSystem, dir string, files map[string]string) {
	t.Helper()
	entries, err := image.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if entry.IsDir() {
			readImage(t, image, name, files)
			continue
		}
		in, err := image.OpenFile(name, os.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
}

func (c *container) carry(t *testing.T, vmi *v1.VirtualMachineInstance) error {
	t.Helper()
	plan, err := NewPlan(vmi)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Apply(t.Context(), c.pod)
}

func TestISOImages(t *testing.T) {
	const noCloudMeta = `{"instance-id":"0b4e8c1a-1111-4222-8333-444455556666","local-hostname":"web"}`
	const driveMeta = `{"instance_id":"web.example.shop","hostname":"web","uuid":"0b4e8c1a-1111-4222-8333-444455556666","local_hostname":"web"}`
	secret := &corev1.LocalObjectReference{Name: "words"}
	for name, tc := range map[string]struct {
		source      v1.VolumeSource
		credentials []v1.AccessCredential
		annotations map[string]string
		mounted     map[string]map[string]string // folder in the pod: its files
		label       string
		files       map[string]string
	}{
		"NoCloud inline": {
			source: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#!/bin/sh\n", NetworkData: "version: 2\n"}},
			label:  "cidata",
			files:  map[string]string{"meta-data": noCloudMeta, "user-data": "#!/bin/sh\n", "network-config": "version: 2\n"},
		},
		"NoCloud base64, without network data": {
			source: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataBase64: "aGVsbG8="}},
			label:  "cidata",
			files:  map[string]string{"meta-data": noCloudMeta, "user-data": "hello"},
		},
		"NoCloud with an instance type": {
			source:      v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "u"}},
			annotations: map[string]string{v1.InstancetypeAnnotation: "small"},
			label:       "cidata",
			files: map[string]string{
				"meta-data": `{"instance-id":"0b4e8c1a-1111-4222-8333-444455556666","instance-type":"small","local-hostname":"web"}`,
				"user-data": "u",
			},
		},
		"ConfigDrive with a cluster's instance type": {
			source:      v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "u"}},
			annotations: map[string]string{v1.ClusterInstancetypeAnnotation: "u1.small"},
			label:       "config-2",
			files: map[string]string{
				"openstack/latest/meta_data.json": `{"instance_type":"u1.small","instance_id":"web.example.shop",` +
					`"hostname":"web","uuid":"0b4e8c1a-1111-4222-8333-444455556666","local_hostname":"web"}`,
				"openstack/latest/user_data": "u",
			},
		},
		"NoCloud from Secrets": {
			source: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataSecretRef: secret, NetworkDataSecretRef: secret}},
			mounted: map[string]map[string]string{
				layout.UserDataDir("v"):    {"userdata": "from a secret"},
				layout.NetworkDataDir("v"): {"networkData": "the other spelling"},
			},
			label: "cidata",
			files: map[string]string{"meta-data": noCloudMeta, "user-data": "from a secret", "network-config": "the other spelling"},
		},
		"NoCloud with SSH keys": {
			source:      v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "u"}},
			credentials: []v1.AccessCredential{sshKeys("alice", noCloudKeys), sshKeys("bob", noCloudKeys), sshKeys("drive", configDriveKeys)},
			mounted: map[string]map[string]string{
				layout.AccessCredentialDir(0): {"laptop": "# mine\nssh-ed25519 AAAA alice@laptop\n\n", "phone": "ssh-rsa BBBB \"phone\"\r\n"},
				layout.AccessCredentialDir(1): {"key": "ssh-ed25519 CCCC bob"},
				layout.AccessCredentialDir(2): {"key": "ssh-ed25519 DDDD for the other kind"},
			},
			label: "cidata",
			files: map[string]string{
				"meta-data": `{"instance-id":"0b4e8c1a-1111-4222-8333-444455556666","local-hostname":"web","public-keys":` +
					`{"0":"ssh-ed25519 AAAA alice@laptop","1":"ssh-rsa BBBB \"phone\"","2":"ssh-ed25519 CCCC bob"}}`,
				"user-data": "u",
			},
		},
		"ConfigDrive with SSH keys": {
			source:      v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "u"}},
			credentials: []v1.AccessCredential{sshKeys("alice", configDriveKeys)},
			mounted:     map[string]map[string]string{layout.AccessCredentialDir(0): {"key": "ssh-ed25519 AAAA"}},
			label:       "config-2",
			files: map[string]string{
				"openstack/latest/meta_data.json": `{"hostname":"web","instance_id":"web.example.shop","local_hostname":"web",` +
					`"public_keys":{"0":"ssh-ed25519 AAAA"},"uuid":"0b4e8c1a-1111-4222-8333-444455556666"}`,
				"openstack/latest/user_data": "u",
			},
		},
		"a Secret without keys": {
			source:      v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "u"}},
			credentials: []v1.AccessCredential{sshKeys("alice", noCloudKeys)},
			mounted:     map[string]map[string]string{layout.AccessCredentialDir(0): {"key": "\n"}},
			label:       "cidata",
			files:       map[string]string{"meta-data": noCloudMeta, "user-data": "u"},
		},
		"sysprep": {
			source:  v1.VolumeSource{Sysprep: &v1.SysprepSource{ConfigMap: secret}},
			mounted: map[string]map[string]string{layout.VolumeDir("v"): {"Autounattend.xml": "<unattend/>", "setup.ps1": "exit"}},
			label:   "unattendCD",
			files:   map[string]string{"Autounattend.xml": "<unattend/>", "setup.ps1": "exit"},
		},
		"ConfigDrive": {
			source: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "u", NetworkDataBase64: "bg=="}},
			label:  "config-2",
			files: map[string]string{
				"openstack/latest/meta_data.json":    driveMeta,
				"openstack/latest/user_data":         "u",
				"openstack/latest/network_data.json": "n",
			},
		},
		"ConfigMap": {
			source:  v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}},
			mounted: map[string]map[string]string{layout.VolumeDir("v"): {"App.Config": "x=1", "other.key": "h"}},
			label:   "cfgdata",
			files:   map[string]string{"App.Config": "x=1", "other.key": "h"},
		},
		"Secret with a label": {
			source:  v1.VolumeSource{Secret: &v1.SecretVolumeSource{VolumeLabel: "OEMDRV"}},
			mounted: map[string]map[string]string{layout.VolumeDir("v"): {"ks.cfg": "text"}},
			label:   "OEMDRV",
			files:   map[string]string{"ks.cfg": "text"},
		},
		"Secret that is optional and missing": {
			source: v1.VolumeSource{Secret: &v1.SecretVolumeSource{Optional: new(true)}},
			label:  "cfgdata",
			files:  map[string]string{},
		},
		"downward API with folders": {
			source:  v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}},
			mounted: map[string]map[string]string{layout.VolumeDir("v"): {"meta/labels": "a=b", "meta/name": "n", "uid": "u"}},
			label:   "cfgdata",
			files:   map[string]string{"meta/labels": "a=b", "meta/name": "n", "uid": "u"},
		},
		"service account": {
			source:  v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{}},
			mounted: map[string]map[string]string{layout.VolumeDir("v"): {"token": "t", "ca.crt": "c", "namespace": "shop"}},
			label:   "cfgdata",
			files:   map[string]string{"token": "t", "ca.crt": "c", "namespace": "shop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			for folder, files := range tc.mounted {
				c.kubeletVolume(t, folder, files)
			}
			instance := vmi(v1.Volume{Name: "v", VolumeSource: tc.source})
			instance.Spec.AccessCredentials, instance.Annotations = tc.credentials, tc.annotations
			if err := c.carry(t, instance); err != nil {
				t.Fatal(err)
			}
			label, files := c.image(t, "v")
			if label != tc.label {
				t.Errorf("the label is %q, want %q", label, tc.label)
			}
			if diff := cmp.Diff(tc.files, files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			// A guest may be reading it, so it must not be made again.
			before, err := os.Stat(c.real(layout.ISOFile("v")))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.carry(t, instance); err != nil {
				t.Fatal(err)
			}
			if after, err := os.Stat(c.real(layout.ISOFile("v"))); err != nil || !os.SameFile(before, after) {
				t.Errorf("the image was made anew: %v", err)
			}
		})
	}
}

func TestTheConfigDriveTellsTheTagsOfInterfaces(t *testing.T) {
	instance := vmi(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "u"}}})
	instance.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	instance.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default", Tag: "front", MacAddress: "9A-50-E8-6F-F3-FE", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}},
		{Name: "plain"},
		{Name: "gone", Tag: "gone", State: v1.InterfaceStateAbsent},
		{Name: "vf", Tag: "fast", MacAddress: "02:00:00:00:00:01", InterfaceBindingMethod: v1.InterfaceBindingMethod{SRIOV: &v1.InterfaceSRIOV{}}},
		{Name: "blue", Tag: "back", PciAddress: "0000:0b:00.0", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}},
	}
	read := func() string {
		c := newContainer(t)
		if err := c.carry(t, instance); err != nil {
			t.Fatal(err)
		}
		_, files := c.image(t, "v")
		return files["openstack/latest/meta_data.json"]
	}
	blue := `{"type":"nic","bus":"pci","address":"0000:0b:00.0","mac":"` + machine.MAC(instance, "blue") + `","tags":["back"]}`
	want := `{"instance_id":"web.example.shop","hostname":"web","uuid":"0b4e8c1a-1111-4222-8333-444455556666","devices":[` +
		`{"type":"nic","bus":"pci","address":"0000:01:00.0","mac":"9a:50:e8:6f:f3:fe","tags":["front"]},` +
		`{"type":"nic","bus":"pci","address":"0000:07:00.0","tags":["fast"]},` + blue + `]}`
	if got := read(); got != want {
		t.Errorf("the metadata are\n%s, want\n%s", got, want)
	}
	// The pod's own address, which a bridge hands on, is not known yet.
	instance.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default", Tag: "front", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}},
	}
	instance.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "plain"}, {Name: "card", Tag: "render"}}
	if got := read(); !strings.HasSuffix(got, `"devices":[{"type":"nic","bus":"pci","address":"0000:01:00.0","tags":["front"]},`+
		`{"type":"hostdev","bus":"pci","address":"0000:12:00.0","tags":["render"]}]}`) {
		t.Errorf("with a bridge to the pod's network the metadata are %s", got)
	}
}

func TestMissingSources(t *testing.T) {
	secret := &corev1.LocalObjectReference{Name: "words"}
	for name, tc := range map[string]struct {
		source v1.VolumeSource
		want   string
	}{
		"Secret without the key": {
			source: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataSecretRef: secret}},
			want:   "preparing volume v: Secret words has no key userdata or userData",
		},
		"ConfigMap that is not mounted": {
			source: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}},
			want:   "no such file or directory",
		},
		"hostDisk that does not exist": {
			source: v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/data/a.img", Type: v1.HostDiskExists}},
			want:   "creating a.img: it does not exist, and the hostDisk's type is not DiskOrCreate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			if tc.source.HostDisk != nil {
				c.mkdir(t, layout.VolumeDir("v"))
			}
			err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: tc.source}))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, want %q", err, tc.want)
			}
		})
	}
}

func TestBadBase64IsSaid(t *testing.T) {
	_, err := NewPlan(vmi(
		v1.Volume{Name: "a", VolumeSource: v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataBase64: "%"}}},
		v1.Volume{Name: "b", VolumeSource: v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{NetworkDataBase64: "%"}}},
	))
	for _, want := range []string{"reading user data of volume a: decoding base64", "reading network data of volume b: decoding base64"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

func TestRawDisks(t *testing.T) {
	const mebi = 1 << 20
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	claim.PersistentVolumeClaim.ClaimName = "data"
	readOnly := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	readOnly.PersistentVolumeClaim.ReadOnly = true
	for name, tc := range map[string]struct {
		source v1.VolumeSource
		file   string
		have   string // content of the file before; empty: none
		want   int64  // its size afterwards
	}{
		"empty claim":          {source: claim, file: "disk.img", want: 64 * mebi},
		"claim with a disk":    {source: claim, file: "disk.img", have: "guest's data", want: 12},
		"empty DataVolume":     {source: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}, file: "disk.img", want: 64 * mebi},
		"read-only claim":      {source: readOnly, file: "disk.img", have: "an image", want: 8},
		"hostDisk to create":   {source: hostDisk(v1.HostDiskExistsOrCreate), file: "a.img", want: 32 * mebi},
		"hostDisk that exists": {source: hostDisk(v1.HostDiskExistsOrCreate), file: "a.img", have: "old", want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t)
			c.pod.Capacity = func(_ context.Context, name string) (int64, error) {
				if name != "data" {
					t.Errorf("the capacity of claim %q was asked for", name)
				}
				return 64 * mebi, nil
			}
			file := filepath.Join(layout.VolumeDir("v"), tc.file)
			c.mkdir(t, layout.VolumeDir("v"))
			if tc.have != "" {
				c.write(t, file, tc.have)
			}
			for range 2 {
				if err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: tc.source})); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(c.real(file))
			switch {
			case err != nil:
				t.Error(err)
			case info.Size() != tc.want:
				t.Errorf("the disk has %d bytes, want %d", info.Size(), tc.want)
			}
		})
	}
}

// TestAnEmptyClaimThatIsOnlyRead must be refused with advice, and stay empty.
func TestAnEmptyClaimThatIsOnlyRead(t *testing.T) {
	c := newContainer(t)
	readOnly := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	readOnly.PersistentVolumeClaim.ClaimName, readOnly.PersistentVolumeClaim.ReadOnly = "iso", true
	c.mkdir(t, layout.VolumeDir("v"))
	const want = "preparing volume v: PVC iso is empty: its file system has no disk.img, and what is only read is not made; " +
		"fill the claim by a DataVolume or by virtctl image-upload, or name another one"
	if err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: readOnly})); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %q", err, want)
	}
	if left, err := os.ReadDir(c.real(layout.VolumeDir("v"))); err != nil || len(left) != 0 {
		t.Errorf("in the claim there is %v, %v", left, err)
	}
}

// A claim is a device or a folder, and only the pod knows which.
func TestBlockClaimGetsNoFile(t *testing.T) {
	c := newContainer(t)
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	c.mkdir(t, layout.VolumeDir("v"))
	c.device(t, layout.VolumeDevice("v"))
	if err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: claim})); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(c.real(layout.VolumeDir("v"))); err != nil || len(left) != 0 {
		t.Errorf("beside the device there is %v, %v", left, err)
	}
}

func TestDevicesOfThePod(t *testing.T) {
	c := newContainer(t)
	if err := OwnDevices(c.pod); err != nil {
		t.Errorf("a pod without devices: %v", err)
	}
	c.write(t, "/victim", "")
	c.mkdir(t, "/dev")
	if err := os.Symlink("/victim", c.real(layout.KVMDevice)); err != nil {
		t.Fatal(err)
	}
	if err := OwnDevices(c.pod); err == nil || !strings.Contains(err.Error(), "it is no device") {
		t.Errorf("a link in a device's place: %v", err)
	}
}

// QEMU's user must own passed-through devices; others beside them must be unchanged.
func TestDevicesThatArePassedThrough(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes device nodes")
	}
	c := newContainer(t)
	c.pod.User = layout.QEMUUser
	c.mkdir(t, path.Join(layout.VFIODir, "devices"))
	for _, name := range []string{"vfio", "42"} {
		c.node(t, path.Join(layout.VFIODir, name), unix.S_IFCHR)
	}
	c.write(t, "/victim", "")
	if err := os.Symlink("/victim", c.real(path.Join(layout.VFIODir, "43"))); err != nil {
		t.Fatal(err)
	}
	if err := OwnDevices(c.pod); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{layout.VFIODir + "/vfio": true, layout.VFIODir + "/42": true, layout.VFIODir + "/devices": false, "/victim": false} {
		var is unix.Stat_t
		if err := unix.Stat(c.real(name), &is); err != nil {
			t.Fatal(err)
		}
		if owned := is.Uid == layout.QEMUUser; owned != want {
			t.Errorf("%s is QEMU's: %v", name, owned)
		}
	}
}

func hostDisk(kind v1.HostDiskType) v1.VolumeSource {
	return v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/data/a.img", Type: kind, Capacity: resource.MustParse("32Mi")}}
}

func TestPlantedLinkIsNotFollowed(t *testing.T) {
	c := newContainer(t)
	claim := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	c.mkdir(t, layout.VolumeDir("v"))
	c.write(t, "/run/victim", "precious")
	if err := os.Symlink("/run/victim", c.real(filepath.Join(layout.VolumeDir("v"), layout.DiskImage))); err != nil {
		t.Fatal(err)
	}
	if err := c.carry(t, vmi(v1.Volume{Name: "v", VolumeSource: claim})); err == nil {
		t.Error("the link was accepted for a disk")
	}
}

func TestGrownSize(t *testing.T) {
	const mib = 1 << 20
	for name, tc := range map[string]struct{ capacity, available, want int64 }{
		"a claim that a DataVolume enlarged for its 1 GiB": {1090 * mib, 1060 * mib, 1024 * mib},
		"a file system that takes more than its share":     {69 * mib, 59 * mib, 58 * mib},
		"a full file system":                               {69 * mib, 0, 0},
	} {
		if got := GrownSize(tc.capacity, tc.available); got != tc.want {
			t.Errorf("%s: got %d MiB, want %d MiB", name, got/mib, tc.want/mib)
		}
	}
}

func TestImageSize(t *testing.T) {
	const mebi = 1 << 20
	for name, tc := range map[string]struct {
		wanted, available, want int64
		tolerated               int
		fails                   bool
	}{
		"room to spare":               {wanted: 100 * mebi, available: 1000 * mebi, want: 100 * mebi},
		"file system took a share":    {wanted: 100 * mebi, available: 96 * mebi, want: 95 * mebi},
		"a small file system's share": {wanted: 256 * mebi, available: 229203968, want: 218 * mebi, tolerated: 10},
		"that share and a tenth":      {wanted: 100 * mebi, available: 86 * mebi, want: 85 * mebi, tolerated: 10},
		"less than that":              {wanted: 100 * mebi, available: 85 * mebi, tolerated: 10, fails: true},
		"nothing is tolerated":        {wanted: 100 * mebi, available: 94 * mebi, fails: true},
		"everything is":               {wanted: 100 * mebi, available: 3 * mebi, want: 2 * mebi, tolerated: 100},
		"full":                        {wanted: 100 * mebi, available: 0, fails: true},
		"full, and all is tolerated":  {wanted: 100 * mebi, available: 0, tolerated: 100, fails: true},
		"size not known":              {wanted: 0, available: 100 * mebi, fails: true},
		"exactly with the reserve":    {wanted: 100 * mebi, available: 100*mebi + reserved, want: 100 * mebi},
		"exactly without the reserve": {wanted: 100 * mebi, available: 100 * mebi, want: 99 * mebi},
	} {
		got, err := ImageSize(tc.wanted, tc.available, tc.tolerated)
		if got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}
