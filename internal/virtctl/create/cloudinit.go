package create

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

type cloudInit struct {
	source       string
	userData     string
	networkData  string
	user         string
	passwordFile string
	sshKeys      []string
	// agentKeys lets the guest's agent manage SSH keys, which SELinux would deny.
	agentKeys               bool
	sourceGiven, agentGiven bool
	// wanted means that the volume is needed even if it contains only an access credential.
	wanted bool
}

const (
	noCloud     = "nocloud"
	configDrive = "configdrive"
	none        = "none"
)

const cloudInitVolume = "cloudinitdisk"

const cloudConfigHeader = "#cloud-config\n"

// volume returns the cloud-init volume of the flags, nil for none.
func (c cloudInit) volume() (*v1.Volume, error) {
	plain := c.plain()
	switch {
	case !slices.Contains([]string{noCloud, configDrive, none}, c.source):
		return nil, fmt.Errorf("--cloud-init must be %s, %s or %s, not %q", noCloud, configDrive, none, c.source)
	case c.userData != "" && plain:
		return nil, errors.New("--cloud-init-user-data already says everything: leave --user, --password-file, --ssh-key and --ga-manage-ssh away")
	case !plain && c.userData == "" && c.networkData == "" && !c.wanted:
		return nil, nil
	case c.source == none:
		return nil, errors.New("--cloud-init=none contradicts the other cloud-init flags: leave one or the others away")
	}
	for _, f := range []struct{ flag, data string }{{"cloud-init-user-data", c.userData}, {"cloud-init-network-data", c.networkData}} {
		if _, err := base64.StdEncoding.DecodeString(f.data); err != nil {
			return nil, fmt.Errorf("--%s must be base64 (as from 'base64 -w0 FILE'): %w", f.flag, err)
		}
	}
	userData := ""
	if plain || c.wanted && c.userData == "" {
		var err error
		if userData, err = c.cloudConfig(); err != nil {
			return nil, err
		}
	}
	return c.inVolume(userData), nil
}

func (c cloudInit) plain() bool {
	return c.user != "" || c.passwordFile != "" || len(c.sshKeys) > 0 || c.agentKeys
}

func (c cloudInit) cloudConfig() (string, error) {
	config := map[string]any{}
	if c.user != "" {
		config["user"] = c.user
	}
	if c.passwordFile != "" {
		password, err := os.ReadFile(c.passwordFile)
		if err != nil {
			return "", fmt.Errorf("reading --password-file: %w", err)
		}
		config["password"] = strings.TrimSpace(string(password))
		config["chpasswd"] = map[string]any{"expire": false}
	}
	if len(c.sshKeys) > 0 {
		config["ssh_authorized_keys"] = c.sshKeys
	}
	if c.agentKeys {
		config["runcmd"] = [][]string{{"setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"}}
	}
	if len(config) == 0 {
		return cloudConfigHeader, nil
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return "", fmt.Errorf("encoding cloud-init user data: %w", err)
	}
	return cloudConfigHeader + string(text), nil
}

func (c cloudInit) inVolume(userData string) *v1.Volume {
	volume := &v1.Volume{Name: cloudInitVolume}
	if c.source == configDrive {
		volume.CloudInitConfigDrive = &v1.CloudInitConfigDriveSource{
			UserData: userData, UserDataBase64: c.userData, NetworkDataBase64: c.networkData,
		}
		return volume
	}
	volume.CloudInitNoCloud = &v1.CloudInitNoCloudSource{
		UserData: userData, UserDataBase64: c.userData, NetworkDataBase64: c.networkData,
	}
	return volume
}
