package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/test/guest/cloudconfig"
)

type seed struct {
	instance string
	hostname string
	// unnamed is the default host name, if it is not this guest's own.
	unnamed  string
	keys     []string
	user     cloudconfig.UserData
	networks []cloudconfig.NIC
}

// layout is the layout of one kind of cloud-init data on its disk.
type layout struct {
	label                   string
	meta, userData, network string
	parseMeta               func([]byte, *seed) error
}

var layouts = []layout{
	{"cidata", "meta-data", "user-data", "network-config", parseNoCloud},
	{"config-2", "openstack/latest/meta_data.json", "openstack/latest/user_data",
		"openstack/latest/network_data.json", parseConfigDrive},
}

// findSeed looks for cloud-init's data on the guest's disks. Without any, it returns an empty seed.
func findSeed() (*seed, error) {
	for _, kind := range layouts {
		device := findLabel(kind.label)
		if device == "" {
			continue
		}
		var found *seed
		err := withMounted(device, unix.MS_RDONLY, func(folder string) (err error) {
			found, err = readSeed(folder, kind)
			return err
		})
		if found == nil {
			found = &seed{}
		}
		return found, err
	}
	return &seed{}, nil
}

// The readable parts are returned with the errors of the others.
func readSeed(folder string, kind layout) (*seed, error) {
	found := &seed{}
	meta, metaErr := readOptional(filepath.Join(folder, kind.meta))
	if metaErr == nil {
		metaErr = kind.parseMeta(meta, found)
	}
	user, userErr := readOptional(filepath.Join(folder, kind.userData))
	if userErr == nil {
		found.user, userErr = cloudconfig.ParseUserData(user)
	}
	network, networkErr := readOptional(filepath.Join(folder, kind.network))
	if networkErr == nil {
		found.networks, networkErr = cloudconfig.ParseNetworkData(network)
	}
	if found.user.Hostname != "" {
		found.hostname = found.user.Hostname
	}
	return found, errors.Join(metaErr, userErr, networkErr)
}

func readOptional(name string) ([]byte, error) {
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// parseNoCloud reads NoCloud's metadata.
func parseNoCloud(data []byte, into *seed) error {
	var meta struct {
		InstanceID    string          `json:"instance-id"`
		Hostname      string          `json:"hostname"`
		LocalHostname string          `json:"local-hostname"`
		PublicKeys    json.RawMessage `json:"public-keys"`
	}
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return fmt.Errorf("reading NoCloud's metadata: %w", err)
	}
	into.instance = meta.InstanceID
	into.hostname = meta.LocalHostname
	if into.hostname == "" {
		into.hostname = meta.Hostname
	}
	keys, err := parseKeys(meta.PublicKeys)
	into.keys = keys
	return err
}

func parseConfigDrive(data []byte, into *seed) error {
	var meta struct {
		InstanceID string          `json:"instance_id"`
		UUID       string          `json:"uuid"`
		Hostname   string          `json:"hostname"`
		PublicKeys json.RawMessage `json:"public_keys"`
	}
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return fmt.Errorf("reading the configuration drive's metadata: %w", err)
	}
	into.instance = meta.InstanceID
	if into.instance == "" {
		into.instance = meta.UUID
	}
	into.hostname = meta.Hostname
	keys, err := parseKeys(meta.PublicKeys)
	into.keys = keys
	return err
}

// Metadata hold keys as a list or as a map by name.
func parseKeys(data json.RawMessage) ([]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var list []string
	if json.Unmarshal(data, &list) == nil {
		return list, nil
	}
	var named map[string]string
	if err := json.Unmarshal(data, &named); err != nil {
		return nil, fmt.Errorf("reading the public keys: %w", err)
	}
	for _, key := range named {
		list = append(list, strings.TrimSpace(key))
	}
	slices.Sort(list)
	return list, nil
}

func findLabel(label string) string {
	devices, err := os.ReadDir("/sys/class/block")
	if err != nil {
		return ""
	}
	for _, device := range devices {
		name := "/dev/" + device.Name()
		if strings.EqualFold(labelOf(name), label) {
			return name
		}
	}
	return ""
}

func labelOf(device string) string {
	file, err := os.Open(device)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	for _, place := range []struct {
		magic         string
		magicAt       int64
		label, length int64
	}{
		{"CD001", 0x8001, 0x8028, 32},
		{"FAT", 0x36, 0x2b, 11}, // FAT12 and FAT16
		{"FAT32", 0x52, 0x47, 11},
	} {
		magic := make([]byte, len(place.magic))
		if _, err := file.ReadAt(magic, place.magicAt); err != nil || string(magic) != place.magic {
			continue
		}
		label := make([]byte, place.length)
		if _, err := file.ReadAt(label, place.label); err == nil {
			return strings.TrimRight(string(label), " \x00")
		}
	}
	return ""
}

func withMounted(device string, flags uintptr, use func(folder string) error) (err error) {
	folder, err := os.MkdirTemp("/run", "mounted-")
	if err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	defer func() { err = errors.Join(err, os.Remove(folder)) }()
	for _, kind := range []string{"iso9660", "vfat"} {
		if err = unix.Mount(device, folder, kind, flags, ""); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(folder, 0)) }()
	return use(folder)
}

// stateLabel is the label of the guest's own disk, if it booted from one.
const stateLabel = "DRYDOCK"

const scriptState = "/run/user-script"

// runOnce runs the user's script and commands, unless this instance ran them before. A guest that was booted without
// its disk remembers nothing and runs them at every boot.
func (s *seed) runOnce(ctx context.Context) error {
	if s.user.Script == nil && len(s.user.Commands) == 0 {
		return nil
	}
	if device := findLabel(stateLabel); device != "" && s.instance != "" {
		ran := false
		err := withMounted(device, 0, func(folder string) (err error) {
			ran, err = mark(filepath.Join(folder, "seen"), s.instance)
			return err
		})
		if err != nil {
			return err
		}
		if ran {
			return os.WriteFile(scriptState, []byte("ran before on this instance\n"), 0o644)
		}
	}
	if err := runUserData(ctx, &s.user); err != nil {
		return err
	}
	return os.WriteFile(scriptState, []byte("ran\n"), 0o644)
}

// mark reports whether an instance was recorded before.
func mark(folder, instance string) (bool, error) {
	name := filepath.Join(folder, strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, instance))
	if _, err := os.Stat(name); err == nil {
		return true, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return false, fmt.Errorf("remembering the instance: %w", err)
	}
	return false, os.WriteFile(name, nil, 0o644)
}
