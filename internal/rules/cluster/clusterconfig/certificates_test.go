package clusterconfig

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const day = 24 * time.Hour

func TestLifetimesOfCertificates(t *testing.T) {
	for name, test := range map[string]struct {
		selfSigned string
		want       Certificates
		wrong      string
	}{
		"nothing is set":           {"{}", DefaultCertificates(), ""},
		"all is set":               {"{ca: {duration: 48h, renewBefore: 24h}, server: {duration: 24h, renewBefore: 12h}}", Certificates{Lifetime{2 * day, day}, Lifetime{day, day / 2}}, ""},
		"the older form":           {"{caRotateInterval: 168h, caOverlapInterval: 24h, certRotateInterval: 24h}", Certificates{Lifetime{7 * day, day}, Lifetime{day, day / 5}}, ""},
		"the authority alone":      {"{ca: {duration: 100h}}", Certificates{Lifetime{100 * time.Hour, 20 * time.Hour}, Lifetime{50 * time.Hour, 10 * time.Hour}}, ""},
		"the server alone":         {"{server: {duration: 24h}}", Certificates{Lifetime{DefaultAuthorityDuration, 90 * day}, Lifetime{day, day / 5}}, ""},
		"the overlap alone":        {"{caOverlapInterval: 24h}", Certificates{Lifetime{DefaultAuthorityDuration, day}, Lifetime{DefaultCertificateDuration, 365 * day / 5}}, ""},
		"the shortest":             {"{ca: {duration: 40m}}", Certificates{Lifetime{40 * time.Minute, 20 * time.Minute}, Lifetime{40 * time.Minute, 20 * time.Minute}}, ""},
		"both forms":               {"{ca: {duration: 48h}, certRotateInterval: 24h}", DefaultCertificates(), "spec.certificateRotateStrategy.selfSigned: Forbidden: caRotateInterval, caOverlapInterval and certRotateInterval are the older form of ca and server; leave them out"},
		"negative":                 {"{server: {duration: -24h}}", DefaultCertificates(), `spec.certificateRotateStrategy.selfSigned.server.duration: Invalid value: "-24h0m0s": must be at least 40m0s`},
		"too short":                {"{certRotateInterval: 1s}", DefaultCertificates(), `spec.certificateRotateStrategy.selfSigned.certRotateInterval: Invalid value: "1s": must be at least 40m0s`},
		"renewed at the beginning": {"{ca: {duration: 48h, renewBefore: 48h}}", DefaultCertificates(), `spec.certificateRotateStrategy.selfSigned.ca.renewBefore: Invalid value: "48h0m0s": must be at least 20m0s, and at most 47h40m0s for a duration of 48h0m0s`},
		"renewed at the end":       {"{server: {renewBefore: 0s}}", DefaultCertificates(), `spec.certificateRotateStrategy.selfSigned.server.renewBefore: Invalid value: "0s": must be at least 20m0s, and at most 8759h40m0s for a duration of 8760h0m0s`},
		"too many authorities":     {"{ca: {duration: 100h, renewBefore: 81h}}", DefaultCertificates(), `spec.certificateRotateStrategy.selfSigned.ca.renewBefore: Invalid value: "81h0m0s": must be at most 80h0m0s, four fifths of the authority's duration`},
		"longer than its authority": {"{ca: {duration: 24h}, server: {duration: 25h}}", DefaultCertificates(),
			`spec.certificateRotateStrategy.selfSigned.server.duration: Invalid value: "25h0m0s": must be at most 24h0m0s, the duration of the authority that signs`},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{}
			if err := yaml.UnmarshalStrict([]byte("spec: {certificateRotateStrategy: {selfSigned: "+test.selfSigned+"}}"), kv); err != nil {
				t.Fatal(err)
			}
			got, errs := CertificatesOf(kv)
			wrong := ""
			if len(errs) > 0 {
				wrong = errs.ToAggregate().Error()
			}
			if got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if wrong != test.wrong {
				t.Errorf("wrong: %s\nwant: %s", wrong, test.wrong)
			}
		})
	}
	if got, errs := CertificatesOf(nil); got != DefaultCertificates() || errs != nil {
		t.Error("without a KubeVirt object the defaults don't count")
	}
}
