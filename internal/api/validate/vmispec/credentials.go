package vmispec

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

func accessCredentials(spec *v1.VirtualMachineInstanceSpec, path *field.Path) field.ErrorList {
	list, at := spec.AccessCredentials, path.Child("accessCredentials")
	if len(list) > accesscredential.MaxCredentials {
		return field.ErrorList{field.TooMany(at, len(list), accesscredential.MaxCredentials)}
	}
	var errs field.ErrorList
	for i := range list {
		c, at := &list[i], at.Index(i)
		var chosen []string
		if c.SSHPublicKey != nil {
			chosen = append(chosen, "sshPublicKey")
			errs = append(errs, sshPublicKey(c.SSHPublicKey, spec.Volumes, at.Child("sshPublicKey"))...)
		}
		if c.UserPassword != nil {
			chosen = append(chosen, "userPassword")
			password, at := c.UserPassword, at.Child("userPassword")
			errs = append(errs, credentialSecret(password.Source.Secret, at.Child("source", "secret"))...)
			if password.PropagationMethod.QemuGuestAgent == nil {
				errs = append(errs, field.Required(at.Child("propagationMethod", "qemuGuestAgent"), "passwords reach the guest by its agent"))
			}
		}
		errs = append(errs, fieldcheck.ExactlyOne(at, chosen, "a credential is exactly one of sshPublicKey and userPassword")...)
	}
	return errs
}

func sshPublicKey(key *v1.SSHPublicKeyAccessCredential, volumes []v1.Volume, at *field.Path) field.ErrorList {
	errs := credentialSecret(key.Source.Secret, at.Child("source", "secret"))
	method, at := &key.PropagationMethod, at.Child("propagationMethod")
	var chosen []string
	if method.NoCloud != nil {
		chosen = append(chosen, "noCloud")
		errs = append(errs, cloudInitVolume(volumes, at.Child("noCloud"), "cloudInitNoCloud",
			func(v *v1.Volume) bool { return v.CloudInitNoCloud != nil })...)
	}
	if method.ConfigDrive != nil {
		chosen = append(chosen, "configDrive")
		errs = append(errs, cloudInitVolume(volumes, at.Child("configDrive"), "cloudInitConfigDrive",
			func(v *v1.Volume) bool { return v.CloudInitConfigDrive != nil })...)
	}
	if method.QemuGuestAgent != nil {
		chosen = append(chosen, "qemuGuestAgent")
		errs = append(errs, guestUsers(method.QemuGuestAgent.Users, at.Child("qemuGuestAgent", "users"))...)
	}
	return append(errs, fieldcheck.ExactlyOne(at, chosen, "SSH keys reach the guest by exactly one of noCloud, configDrive and qemuGuestAgent")...)
}

func credentialSecret(secret *v1.AccessCredentialSecretSource, at *field.Path) field.ErrorList {
	if secret == nil {
		return field.ErrorList{field.Required(at, "is where the credential comes from")}
	}
	return fieldcheck.RequiredName(secret.SecretName, at.Child("secretName"), "names the Secret")
}

func cloudInitVolume(volumes []v1.Volume, at *field.Path, kind string, is func(*v1.Volume) bool) field.ErrorList {
	if slices.ContainsFunc(volumes, func(v v1.Volume) bool { return is(&v) }) {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf("needs a volume of the kind %s, which carries the keys", kind))}
}

func guestUsers(users []string, at *field.Path) field.ErrorList {
	if len(users) == 0 {
		return field.ErrorList{field.Required(at, "names the guest's users that get the keys")}
	}
	if len(users) > accesscredential.MaxUsers {
		return field.ErrorList{field.TooMany(at, len(users), accesscredential.MaxUsers)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, user := range users {
		if !accesscredential.IsUser(user) {
			errs = append(errs, field.Invalid(at.Index(i), abbreviate(user), "must be the name of a user: without blanks, slashes and control characters, at most 256 bytes"))
		}
		errs = append(errs, fieldcheck.Unique(seen, user, at.Index(i))...)
	}
	return errs
}
