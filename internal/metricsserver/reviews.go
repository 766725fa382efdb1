package metricsserver

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

const reviewTimeout = 5 * time.Second

type reviews struct {
	tokens authentication.TokenReviewInterface
	access authorization.SubjectAccessReviewInterface
}

// newReviews uses a separate client, so that strangers' requests, which the gate limits, don't slow the component's own.
func newReviews(server *rest.Config) (*reviews, error) {
	server = rest.CopyConfig(server)
	server.QPS, server.RateLimiter, server.Timeout = -1, nil, reviewTimeout
	clientset, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, fmt.Errorf("making a client that asks who may read metrics: %w", err)
	}
	return &reviews{tokens: clientset.AuthenticationV1().TokenReviews(), access: clientset.AuthorizationV1().SubjectAccessReviews()}, nil
}

func (r *reviews) ask(ctx context.Context, token string) (verdict, error) {
	who, err := r.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("asking the API server whose a token is: %w", err)
	}
	if !who.Status.Authenticated {
		return verdict{}, nil
	}
	user := who.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	may, err := r.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return verdict{}, fmt.Errorf("asking the API server whether %s may get %s: %w", user.Username, path, err)
	}
	return verdict{user: user.Username, allowed: may.Status.Allowed}, nil
}
