package create

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

const (
	credentialFlag = "access-cred"
	sysprepFlag    = "volume-sysprep"
	sysprepVolume  = "sysprepdisk"
	// The guest's agent applies the Secret.
	agent = "ga"
)

func secretName(flag, text string) error {
	if problems := validation.IsDNS1123Subdomain(text); len(problems) > 0 {
		return fmt.Errorf("--%s: src %q is no name of an object in the machine's own namespace: %s", flag, text, problems[0])
	}
	return nil
}

// parseCredential also sets cloud-init's part.
func (c *cloudInit) parseCredential(text string) (v1.AccessCredential, error) {
	none := v1.AccessCredential{}
	values, err := pairs(credentialFlag, text)
	if err != nil {
		return none, err
	}
	if err := checkKeys(credentialFlag, values, []string{"type", "src", "method", "user"}, []string{"src"}); err != nil {
		return none, err
	}
	secret := values["src"]
	if err := secretName(credentialFlag, secret); err != nil {
		return none, err
	}
	source := &v1.AccessCredentialSecretSource{SecretName: secret}
	switch kind, method := strings.ToLower(values["type"]), strings.ToLower(values["method"]); kind {
	case "", "ssh":
		propagation, err := c.propagateKeys(method, values["user"])
		return v1.AccessCredential{SSHPublicKey: &v1.SSHPublicKeyAccessCredential{
			Source: v1.SSHPublicKeyAccessCredentialSource{Secret: source}, PropagationMethod: propagation,
		}}, err
	case "password":
		if method != "" && method != agent {
			return none, fmt.Errorf("--%s: the method of type password must be %s, not %q", credentialFlag, agent, values["method"])
		}
		if values["user"] != "" {
			return none, fmt.Errorf("--%s: type password takes no user: the keys of Secret %s are the users", credentialFlag, secret)
		}
		return v1.AccessCredential{UserPassword: &v1.UserPasswordAccessCredential{
			Source:            v1.UserPasswordAccessCredentialSource{Secret: source},
			PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{}},
		}}, nil
	default:
		return none, fmt.Errorf("--%s: type must be ssh or password, not %q", credentialFlag, values["type"])
	}
}

func (c *cloudInit) propagateKeys(method, user string) (v1.SSHPublicKeyAccessCredentialPropagationMethod, error) {
	out := v1.SSHPublicKeyAccessCredentialPropagationMethod{}
	switch method {
	case "", agent:
		if user == "" {
			user = c.user
		}
		if user == "" {
			return out, fmt.Errorf("--%s: the method %s needs the user whose keys they are: the parameter user, or --user", credentialFlag, agent)
		}
		if !c.agentGiven {
			c.agentKeys = true
		}
		out.QemuGuestAgent = &v1.QemuGuestAgentSSHPublicKeyAccessCredentialPropagation{Users: []string{user}}
		return out, nil
	case noCloud:
		out.NoCloud = &v1.NoCloudSSHPublicKeyAccessCredentialPropagation{}
	case configDrive:
		out.ConfigDrive = &v1.ConfigDriveSSHPublicKeyAccessCredentialPropagation{}
	default:
		return out, fmt.Errorf("--%s: method must be %s, %s or %s, not %q", credentialFlag, agent, noCloud, configDrive, method)
	}
	if user != "" {
		return out, fmt.Errorf("--%s: the method %s takes no user: cloud-init gives the keys to its own", credentialFlag, method)
	}
	if !c.sourceGiven {
		c.source, c.sourceGiven = method, true
	}
	if c.source != method {
		return out, fmt.Errorf("--%s: the method is %s, but --cloud-init is %s: they must be the same", credentialFlag, method, c.source)
	}
	c.wanted = true
	return out, nil
}

func parseSysprep(text string) (disk, error) {
	values, err := pairs(sysprepFlag, text)
	if err != nil {
		return disk{}, err
	}
	if err := checkKeys(sysprepFlag, values, []string{"src", "type"}, []string{"src"}); err != nil {
		return disk{}, err
	}
	if err := secretName(sysprepFlag, values["src"]); err != nil {
		return disk{}, err
	}
	reference := &corev1.LocalObjectReference{Name: values["src"]}
	source := &v1.SysprepSource{}
	switch strings.ToLower(values["type"]) {
	case "", "configmap":
		source.ConfigMap = reference
	case "secret":
		source.Secret = reference
	default:
		return disk{}, fmt.Errorf("--%s: type must be configmap or secret, not %q", sysprepFlag, values["type"])
	}
	return disk{volume: v1.Volume{Name: sysprepVolume, VolumeSource: v1.VolumeSource{Sysprep: source}}, isCDRom: true}, nil
}
