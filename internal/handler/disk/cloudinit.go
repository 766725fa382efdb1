package disk

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
	"drydock.dev/drydock/internal/rules/vmi/hostdevice"
)

const (
	noCloudLabel     = "cidata"
	configDriveLabel = "config-2"
)

type cloudInit struct {
	userData, userDataBase64, userDataSecret          string
	networkData, networkDataBase64, networkDataSecret string
}

func noCloudSource(s *v1.CloudInitNoCloudSource) cloudInit {
	c := cloudInit{
		userData: s.UserData, userDataBase64: s.UserDataBase64,
		networkData: s.NetworkData, networkDataBase64: s.NetworkDataBase64,
	}
	if s.UserDataSecretRef != nil {
		c.userDataSecret = s.UserDataSecretRef.Name
	}
	if s.NetworkDataSecretRef != nil {
		c.networkDataSecret = s.NetworkDataSecretRef.Name
	}
	return c
}

func noCloud(vmi *v1.VirtualMachineInstance, volume string, s *v1.CloudInitNoCloudSource) (Image, error) {
	metaData, err := json.Marshal(struct {
		InstanceID    string `json:"instance-id"`
		InstanceType  string `json:"instance-type,omitempty"`
		LocalHostname string `json:"local-hostname"`
	}{cmp.Or(guestUUID(vmi), qualifiedName(vmi)), instanceType(vmi), machine.Hostname(vmi)})
	if err != nil {
		return Image{}, fmt.Errorf("encoding meta-data: %w", err)
	}
	image := Image{
		Volume: volume, Label: noCloudLabel, Files: []iso.File{{Path: "meta-data", Data: metaData}},
		Keys: Keys{Document: "meta-data", Member: "public-keys", Secrets: accesscredential.NoCloud(&vmi.Spec)},
	}
	err = image.addCloudInit(noCloudSource(s), "user-data", "network-config")
	return image, err
}

func configDrive(vmi *v1.VirtualMachineInstance, volume string, s *v1.CloudInitConfigDriveSource) (Image, error) {
	// The members have KubeVirt's order.
	meta := struct {
		InstanceType string   `json:"instance_type,omitempty"`
		InstanceID   string   `json:"instance_id"`
		Hostname     string   `json:"hostname"`
		UUID         string   `json:"uuid"`
		Devices      []device `json:"devices,omitempty"`
		// LocalHostname is read by nobody. Without it the images of guests that run already would be smaller at a
		// migration's target, and only images of the same size can be copied.
		LocalHostname string `json:"local_hostname,omitempty"`
	}{
		InstanceType: instanceType(vmi), InstanceID: qualifiedName(vmi), Hostname: machine.Hostname(vmi),
		UUID: guestUUID(vmi), Devices: taggedDevices(vmi),
	}
	if len(meta.Devices) == 0 {
		meta.LocalHostname = meta.Hostname
	}
	metaData, err := json.Marshal(meta)
	if err != nil {
		return Image{}, fmt.Errorf("encoding meta_data.json: %w", err)
	}
	const folder = "openstack/latest/"
	image := Image{
		Volume: volume, Label: configDriveLabel, Files: []iso.File{{Path: folder + "meta_data.json", Data: metaData}},
		Keys: Keys{Document: folder + "meta_data.json", Member: "public_keys", Secrets: accesscredential.ConfigDrive(&vmi.Spec)},
	}
	same := &v1.CloudInitNoCloudSource{
		UserData: s.UserData, UserDataBase64: s.UserDataBase64, UserDataSecretRef: s.UserDataSecretRef,
		NetworkData: s.NetworkData, NetworkDataBase64: s.NetworkDataBase64, NetworkDataSecretRef: s.NetworkDataSecretRef,
	}
	err = image.addCloudInit(noCloudSource(same), folder+"user_data", folder+"network_data.json")
	return image, err
}

// device is a device with tags in the form of OpenStack.
type device struct {
	Type    string   `json:"type"`
	Bus     string   `json:"bus"`
	Address string   `json:"address"`
	MAC     string   `json:"mac,omitempty"`
	Tags    []string `json:"tags"`
}

// taggedDevices omits a MAC address that others choose: a device's network plugin, or the pod if a bridge hands on its
// address.
func taggedDevices(vmi *v1.VirtualMachineInstance) []device {
	var devices []device
	addresses := machine.NICAddresses(&vmi.Spec)
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		iface := &vmi.Spec.Domain.Devices.Interfaces[i]
		if iface.Tag == "" || iface.State == v1.InterfaceStateAbsent {
			continue
		}
		d := device{Type: "nic", Bus: "pci", Address: addresses[i], Tags: []string{iface.Tag}}
		if iface.SRIOV == nil && (iface.Bridge == nil || iface.MacAddress != "" || !onPodNetwork(vmi, iface.Name)) {
			d.MAC = machine.MAC(vmi, iface.Name)
		}
		devices = append(devices, d)
	}
	addresses = machine.HostDeviceAddresses(&vmi.Spec)
	for i, d := range hostdevice.Of(&vmi.Spec) {
		if d.Tag != "" {
			devices = append(devices, device{Type: "hostdev", Bus: "pci", Address: addresses[i], Tags: []string{d.Tag}})
		}
	}
	return devices
}

func onPodNetwork(vmi *v1.VirtualMachineInstance, name string) bool {
	return slices.ContainsFunc(vmi.Spec.Networks, func(n v1.Network) bool { return n.Name == name && n.Pod != nil })
}

// An empty file of network data would mean no network.
func (i *Image) addCloudInit(c cloudInit, userPath, networkPath string) error {
	err := i.addText(text{
		path: userPath, inline: c.userData, base64: c.userDataBase64, secret: c.userDataSecret,
		folder: layout.UserDataDir(i.Volume), keys: []string{"userdata", "userData"},
	})
	if err != nil {
		return fmt.Errorf("reading user data of volume %s: %w", i.Volume, err)
	}
	if c.networkData == "" && c.networkDataBase64 == "" && c.networkDataSecret == "" {
		return nil
	}
	err = i.addText(text{
		path: networkPath, inline: c.networkData, base64: c.networkDataBase64, secret: c.networkDataSecret,
		folder: layout.NetworkDataDir(i.Volume), keys: []string{"networkdata", "networkData"},
	})
	if err != nil {
		return fmt.Errorf("reading network data of volume %s: %w", i.Volume, err)
	}
	return nil
}

type text struct {
	path           string
	inline, base64 string
	// secret is mounted at folder, and one of keys has the text.
	secret, folder string
	keys           []string
}

func (i *Image) addText(t text) error {
	switch {
	case t.secret != "":
		i.Copies = append(i.Copies, Copy{Path: t.path, Folder: t.folder, Keys: t.keys, Of: "Secret " + t.secret})
		return nil
	case t.base64 != "":
		data, err := base64.StdEncoding.DecodeString(t.base64)
		if err != nil {
			return fmt.Errorf("decoding base64: %w", err)
		}
		i.Files = append(i.Files, iso.File{Path: t.path, Data: data})
		return nil
	}
	i.Files = append(i.Files, iso.File{Path: t.path, Data: []byte(t.inline)})
	return nil
}

// qualifiedName is the instance ID of ConfigDrive; that of NoCloud is the firmware UUID. When the ID changes,
// cloud-init repeats its once-per-instance steps, so a VM keeps its ID from KubeVirt.
func qualifiedName(vmi *v1.VirtualMachineInstance) string { return vmi.Name + "." + vmi.Namespace }

func instanceType(vmi *v1.VirtualMachineInstance) string {
	return cmp.Or(vmi.Annotations[v1.ClusterInstancetypeAnnotation], vmi.Annotations[v1.InstancetypeAnnotation])
}

func guestUUID(vmi *v1.VirtualMachineInstance) string {
	if f := vmi.Spec.Domain.Firmware; f != nil {
		return string(f.UUID)
	}
	return ""
}
