package nodecert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	requestBlock = "CERTIFICATE REQUEST"
	// maxRequest bounds a request in bytes: a P-256 key and a name of 300 bytes take about 700.
	maxRequest = 4096
	commonName = "virt-handler"
)

// Usages are a certificate's permitted usages.
type Usages int

const (
	// ServerAndClient is for virt-api's calls and, in migrations, another virt-handler's.
	ServerAndClient Usages = iota
	// ServerOnly is for virt-api's calls alone: the release before migrations requests and signs it.
	ServerOnly
)

func (u Usages) list() []certificatesv1.KeyUsage {
	list := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	if u == ServerAndClient {
		list = append(list, certificatesv1.UsageClientAuth)
	}
	return list
}

func (u Usages) extended() []x509.ExtKeyUsage {
	if u == ServerAndClient {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
}

// usagesOf returns the usages of a request, false for others.
func usagesOf(request *certificatesv1.CertificateSigningRequest) (u Usages, ok bool) {
	asked := slices.Sorted(slices.Values(request.Spec.Usages))
	for _, u := range []Usages{ServerAndClient, ServerOnly} {
		if slices.Equal(asked, slices.Sorted(slices.Values(u.list()))) {
			return u, true
		}
	}
	return 0, false
}

// New returns a request for a node's key.
func New(node string, key crypto.Signer, usages Usages) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		// A node's name may exceed the limit of a common name.
		Subject:  pkix.Name{CommonName: commonName},
		DNSNames: []string{DNSName(node)},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate request of node %s: %w", node, err)
	}
	request := &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: RequestName(node)},
	}
	request.Spec.SignerName = SignerName
	request.Spec.Usages = usages.list()
	request.Spec.ExpirationSeconds = new(int32(Lifetime / time.Second))
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
	return request, nil
}

// Grant is an approved certificate. The zero value can't be signed.
type Grant struct {
	// Node is the one to which the API server bound the requester's token.
	Node string

	key      *ecdsa.PublicKey
	usages   Usages
	lifetime time.Duration
}

// Check returns the certificate that the requester may have, for the node of its token. Only the request's key gets
// into it. The error is for the request's status.
func Check(request *certificatesv1.CertificateSigningRequest) (Grant, error) {
	spec := &request.Spec
	node, err := requester(spec)
	if err != nil {
		return Grant{}, err
	}
	if request.Name != RequestName(node) {
		return Grant{}, fmt.Errorf("the request of the virt-handler on node %s must be named %s", node, RequestName(node))
	}
	usages, ok := usagesOf(request)
	if !ok {
		return Grant{}, fmt.Errorf("the usages must be %v or %v", ServerAndClient.list(), ServerOnly.list())
	}
	content, err := parse(spec.Request)
	if err != nil {
		return Grant{}, err
	}
	key, err := keyOf(content, node)
	if err != nil {
		return Grant{}, err
	}
	return Grant{Node: node, key: key, usages: usages, lifetime: lifetime(spec.ExpirationSeconds)}, nil
}

func requester(spec *certificatesv1.CertificateSigningRequestSpec) (string, error) {
	if spec.Username != Account {
		return "", fmt.Errorf("only %s may ask for certificates of %s", Account, SignerName)
	}
	nodes, pods := spec.Extra[nodeNameExtra], spec.Extra[podUIDExtra]
	if len(nodes) != 1 || nodes[0] == "" || len(pods) != 1 || pods[0] == "" {
		return "", errors.New("the requester's token is not bound to a pod on a node")
	}
	return nodes[0], nil
}

func parse(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("the request has %d bytes; %d are enough", len(text), maxRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != requestBlock || len(block.Headers) > 0 || len(rest) > 0 {
		return nil, fmt.Errorf("the request must be one PEM block %q", requestBlock)
	}
	content, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request can't be read: %w", err)
	}
	return content, nil
}

// subjectAltName is the only extension that a request may have.
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// keyOf returns the key of a request for exactly the node's name.
func keyOf(content *x509.CertificateRequest, node string) (*ecdsa.PublicKey, error) {
	if content.Subject.String() != "CN="+commonName {
		return nil, fmt.Errorf("the subject must be CN=%s", commonName)
	}
	others := len(content.IPAddresses) + len(content.EmailAddresses) + len(content.URIs)
	if !slices.Equal(content.DNSNames, []string{DNSName(node)}) || others > 0 {
		return nil, fmt.Errorf("the virt-handler on node %s may have the name %s and no other", node, DNSName(node))
	}
	for _, extension := range content.Extensions {
		if !extension.Id.Equal(subjectAltName) {
			return nil, fmt.Errorf("the request has the extension %s", extension.Id)
		}
	}
	key, ok := content.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the key must be one of ECDSA on P-256")
	}
	if err := content.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the requester does not prove to have the key: %w", err)
	}
	return key, nil
}

func lifetime(seconds *int32) time.Duration {
	if seconds == nil {
		return Lifetime
	}
	return min(max(time.Duration(*seconds)*time.Second, 0), Lifetime)
}

func madeWith(request *certificatesv1.CertificateSigningRequest, key crypto.Signer) bool {
	content, err := parse(request.Spec.Request)
	if err != nil {
		return false
	}
	public, ok := key.Public().(*ecdsa.PublicKey)
	return ok && public.Equal(content.PublicKey)
}
