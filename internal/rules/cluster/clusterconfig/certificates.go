package clusterconfig

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
)

// Defaults of certificateRotateStrategy.
const (
	DefaultAuthorityDuration   = 10 * 365 * 24 * time.Hour
	DefaultCertificateDuration = 365 * 24 * time.Hour
	// maxOverlap bounds the default RenewBefore.
	maxOverlap = 90 * 24 * time.Hour
)

// minCertificateStep is the minimum between two rotations, and between a rotation and the replaced certificate's end.
// Workers get a certificate of a new authority within ten minutes.
const minCertificateStep = 20 * time.Minute

// Lifetime is a certificate's validity, and the time before its end at which it is replaced.
type Lifetime struct {
	Duration, RenewBefore time.Duration
}

// Certificates are the lifetimes of Drydock's own certificates and of their authorities.
type Certificates struct {
	Authority, Certificate Lifetime
}

// DefaultCertificates returns the default lifetimes.
func DefaultCertificates() Certificates {
	return Certificates{
		Authority:   Lifetime{DefaultAuthorityDuration, maxOverlap},
		Certificate: Lifetime{DefaultCertificateDuration, DefaultCertificateDuration / 5},
	}
}

// CertificatesOf returns the lifetimes that a KubeVirt object sets; kv may be nil. Unusable settings, which admission
// refuses while it is available, give the defaults and errors.
func CertificatesOf(kv *v1.KubeVirt) (Certificates, field.ErrorList) {
	if kv == nil || kv.Spec.CertificateRotationStrategy.SelfSigned == nil {
		return DefaultCertificates(), nil
	}
	set, path := kv.Spec.CertificateRotationStrategy.SelfSigned, field.NewPath("spec", "certificateRotateStrategy", "selfSigned")
	older := set.CARotateInterval != nil || set.CAOverlapInterval != nil || set.CertRotateInterval != nil
	if older && (set.CA != nil || set.Server != nil) {
		return DefaultCertificates(), field.ErrorList{field.Forbidden(path,
			"caRotateInterval, caOverlapInterval and certRotateInterval are the older form of ca and server; leave them out")}
	}
	authority, certificate := lifetimesOf(set, path)
	out := Certificates{
		Authority: authority.or(DefaultAuthorityDuration),
	}
	out.Certificate = certificate.or(min(DefaultCertificateDuration, max(out.Authority.Duration/2, 2*minCertificateStep)))
	errs := append(authority.check(out.Authority), certificate.check(out.Certificate)...)
	// With a longer overlap, more than three authorities would be trusted at a time (decision 060).
	if most := out.Authority.Duration / 5 * 4; len(errs) == 0 && out.Authority.RenewBefore > most {
		errs = append(errs, field.Invalid(authority.renewBeforeAt, out.Authority.RenewBefore.String(),
			fmt.Sprintf("must be at most %s, four fifths of the authority's duration", most)))
	}
	if len(errs) == 0 && out.Certificate.Duration > out.Authority.Duration {
		errs = append(errs, field.Invalid(certificate.durationAt, out.Certificate.Duration.String(),
			fmt.Sprintf("must be at most %s, the duration of the authority that signs", out.Authority.Duration)))
	}
	if len(errs) > 0 {
		return DefaultCertificates(), errs
	}
	return out, nil
}

// asked is a lifetime in the KubeVirt object.
type asked struct {
	duration, renewBefore     *metav1.Duration
	durationAt, renewBeforeAt *field.Path
}

// lifetimesOf reads the newer form, or the older one.
func lifetimesOf(set *v1.KubeVirtSelfSignConfiguration, path *field.Path) (authority, certificate asked) {
	if set.CA == nil && set.Server == nil {
		return asked{set.CARotateInterval, set.CAOverlapInterval, path.Child("caRotateInterval"), path.Child("caOverlapInterval")},
			asked{set.CertRotateInterval, nil, path.Child("certRotateInterval"), path.Child("certRotateInterval")}
	}
	read := func(config *v1.CertConfig, at *field.Path) asked {
		a := asked{durationAt: at.Child("duration"), renewBeforeAt: at.Child("renewBefore")}
		if config != nil {
			a.duration, a.renewBefore = config.Duration, config.RenewBefore
		}
		return a
	}
	return read(set.CA, path.Child("ca")), read(set.Server, path.Child("server"))
}

// or fills in unset fields: by default, certificates overlap for a fifth of their duration.
func (a asked) or(duration time.Duration) Lifetime {
	if a.duration != nil {
		duration = a.duration.Duration
	}
	l := Lifetime{duration, min(max(duration/5, minCertificateStep), maxOverlap)}
	if a.renewBefore != nil {
		l.RenewBefore = a.renewBefore.Duration
	}
	return l
}

func (a asked) check(l Lifetime) field.ErrorList {
	if l.Duration < 2*minCertificateStep {
		return field.ErrorList{field.Invalid(a.durationAt, l.Duration.String(), fmt.Sprintf("must be at least %s", 2*minCertificateStep))}
	}
	if most := l.Duration - minCertificateStep; l.RenewBefore < minCertificateStep || l.RenewBefore > most {
		return field.ErrorList{field.Invalid(a.renewBeforeAt, l.RenewBefore.String(),
			fmt.Sprintf("must be at least %s, and at most %s for a duration of %s", minCertificateStep, most, l.Duration))}
	}
	return nil
}
