package nodecert

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Act is virt-api's action on a request.
type Act int

const (
	// Ignore a request for another signer, or one that has ended.
	Ignore Act = iota
	// Approve it, then look again.
	Approve
	// Sign an approved request.
	Sign
	// Refuse it permanently: Denied, or Failed if somebody else has approved it.
	Refuse
)

// Verdict is an Act with its arguments.
type Verdict struct {
	Act Act
	// Grant is for Approve and Sign.
	Grant Grant
	// Condition is added by Approve and Refuse.
	Condition certificatesv1.CertificateSigningRequestCondition
}

// Judge does not trust an approval: it checks every request before it is signed.
func Judge(request *certificatesv1.CertificateSigningRequest) Verdict {
	if request.Spec.SignerName != SignerName || len(request.Status.Certificate) > 0 ||
		has(request, certificatesv1.CertificateDenied) || has(request, certificatesv1.CertificateFailed) {
		return Verdict{Act: Ignore}
	}
	approved := has(request, certificatesv1.CertificateApproved)
	grant, err := Check(request)
	switch {
	case err != nil && approved:
		return refuse(certificatesv1.CertificateFailed, err)
	case err != nil:
		return refuse(certificatesv1.CertificateDenied, err)
	case approved:
		return Verdict{Act: Sign, Grant: grant}
	default:
		return Verdict{Act: Approve, Grant: grant, Condition: certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "VirtHandlerOfItsNode",
			Message: "The requester is the virt-handler on node " + grant.Node + ".",
		}}
	}
}

func refuse(kind certificatesv1.RequestConditionType, reason error) Verdict {
	return Verdict{Act: Refuse, Condition: certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "NotVirtHandlerOfItsNode", Message: reason.Error(),
	}}
}

func condition(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType,
) (certificatesv1.CertificateSigningRequestCondition, bool) {
	at := slices.IndexFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind
	})
	if at < 0 {
		return certificatesv1.CertificateSigningRequestCondition{}, false
	}
	return request.Status.Conditions[at], true
}

func has(request *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	_, ok := condition(request, kind)
	return ok
}

// Requester returns the node whose virt-handler provably made the request, "" for none. Requests are counted by it.
func Requester(request *certificatesv1.CertificateSigningRequest) string {
	node, err := requester(&request.Spec)
	if err != nil {
		return ""
	}
	return node
}

// Conclude adds the verdict's condition.
func Conclude(request *certificatesv1.CertificateSigningRequest, v Verdict, now metav1.Time) {
	added := v.Condition
	added.LastUpdateTime, added.LastTransitionTime = now, now
	request.Status.Conditions = append(request.Status.Conditions, added)
}
