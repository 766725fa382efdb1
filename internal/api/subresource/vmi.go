package subresource

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/answer"
	"drydock.dev/drydock/internal/contracts/nodeapi"
)

type precondition func(*v1.VirtualMachineInstance) error

func (s *Server) act(verb nodeapi.Verb, allowed precondition) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		// The options of all verbs have only the field dryRun.
		options, err := readOptions[v1.PauseOptions](r)
		if err != nil {
			return err
		}
		vmi, err := s.instance(r, allowed)
		if err != nil {
			return err
		}
		if len(options.DryRun) > 0 {
			w.WriteHeader(http.StatusOK)
			return nil
		}
		s.pass(w, r, vmi, verb)
		return nil
	}
}

func target(port, protocol string) ([]string, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("port is %q; it must be a number from 1 to 65535", port))
	}
	switch protocol = strings.ToLower(protocol); protocol {
	case "":
		protocol = "tcp"
	case "tcp", "udp":
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("protocol is %q; it must be tcp or udp", protocol))
	}
	return []string{strconv.FormatUint(number, 10), protocol}, nil
}

func (s *Server) instance(r *http.Request, allowed precondition) (*v1.VirtualMachineInstance, error) {
	vmi := &v1.VirtualMachineInstance{}
	if err := s.cluster.Get(r.Context(), key(r), vmi); err != nil {
		return nil, err
	}
	return vmi, allowed(vmi)
}

func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	kubevirts := &v1.KubeVirtList{}
	if err := s.cluster.List(r.Context(), kubevirts, client.Limit(1)); err != nil {
		answer.Error(w, apierrors.NewInternalError(fmt.Errorf("reading the KubeVirt object: %w", err)))
		return
	}
	if err := answer.JSON(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess}); err != nil {
		answer.Error(w, err)
	}
}

// guestfs tells KubeVirt's virtctl the image that `virtctl guestfs` runs on a claim: gsImage, or else a registry and
// a tag that virtctl combines.
func (s *Server) guestfs(w http.ResponseWriter, _ *http.Request) {
	if err := answer.JSON(w, http.StatusOK, map[string]string{"gsImage": s.maintenance.Image}); err != nil {
		answer.Error(w, err)
	}
}
