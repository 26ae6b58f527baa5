/* What the C client gets, a line a case, for the test to compare. Arguments: URL, subject, subject in the stream, CA file. */
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MS 60000

static void must(natsStatus status, const char *what) {
    if (status != NATS_OK) {
        printf("%s: %s, %s\n", what, natsStatus_GetText(status), nats_GetLastError(NULL));
        exit(1);
    }
}

static const char *named(const char *subject, const char *rest) {
    static char names[64][256];
    static int next;
    char *name = names[next++ % 64];
    snprintf(name, sizeof names[0], "%s%s", subject, rest);
    return name;
}

static void print_next(natsSubscription *subscription, int count) {
    for (int i = 0; i < count; i++) {
        natsMsg *message = NULL;
        must(natsSubscription_NextMsg(&message, subscription, LONG_MS), "next message");
        printf(" %.*s", natsMsg_GetDataLength(message), natsMsg_GetData(message));
        natsMsg_Destroy(message);
    }
    printf("\n");
}

static natsStatus connected(natsConnection **connection, char **arguments, const char *password, natsConnectionHandler back) {
    natsOptions *options = NULL;
    must(natsOptions_Create(&options), "options");
    must(natsOptions_SetURL(options, arguments[1]), "URL");
    must(natsOptions_SetUserInfo(options, "ann", password), "user");
    must(natsOptions_SetSecure(options, true), "TLS");
    must(natsOptions_LoadCATrustedCertificates(options, arguments[4]), "certificate");
    must(natsOptions_SetReconnectWait(options, 50), "reconnect wait");
    must(natsOptions_SetReconnectJitter(options, 1, 1), "reconnect jitter");
    must(natsOptions_SetMaxReconnect(options, -1), "reconnect");
    must(natsOptions_SetReconnectedCB(options, back, (void *)named(arguments[2], "-back")), "reconnected");
    natsStatus status = natsConnection_Connect(connection, options);
    natsOptions_Destroy(options);
    return status;
}

static void on_reconnected(natsConnection *connection, void *subject) {
    must(natsConnection_PublishString(connection, subject, "back"), "publish when back");
}

static void on_request(natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *closure) {
    char answer[256];
    snprintf(answer, sizeof answer, "re: %.*s", natsMsg_GetDataLength(message), natsMsg_GetData(message));
    must(natsConnection_PublishString(connection, natsMsg_GetReply(message), answer), "answer");
    natsMsg_Destroy(message);
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    const char *subject = arguments[2], *logged = arguments[3];
    natsConnection *one = NULL, *other = NULL;
    setvbuf(stdout, NULL, _IOLBF, 0);

    natsStatus wrong = connected(&one, arguments, "wrong", NULL);
    printf("authentication %s\n", wrong == NATS_CONNECTION_AUTH_FAILED ? "refused" : natsStatus_GetText(wrong));
    must(connected(&one, arguments, "s3cret", on_reconnected), "connect");
    must(connected(&other, arguments, "s3cret", NULL), "connect");

    natsSubscription *all = NULL, *some = NULL, *work[2] = {NULL, NULL}, *service = NULL, *kept = NULL, *back = NULL;
    must(natsConnection_SubscribeSync(&all, other, named(subject, ".>")), "subscribe");
    must(natsConnection_SubscribeSync(&some, other, named(subject, ".*.b")), "subscribe");
    must(natsSubscription_AutoUnsubscribe(some, 1), "unsubscribe after one");
    must(natsConnection_Flush(other), "flush");
    must(natsConnection_PublishString(one, named(subject, ".a"), "a"), "publish");
    must(natsConnection_PublishString(one, named(subject, ".x.b"), "x.b"), "publish");
    must(natsConnection_PublishString(one, named(subject, ".y.b"), "y.b"), "publish");
    printf("publish");
    print_next(all, 3);
    printf("wildcard, at most one");
    print_next(some, 1);
    natsMsg *message = NULL;
    if (natsSubscription_NextMsg(&message, some, 1) != NATS_MAX_DELIVERED_MSGS) printf("more than one\n");

    must(natsConnection_QueueSubscribeSync(&work[0], one, named(subject, "-work"), "q"), "queue");
    must(natsConnection_QueueSubscribeSync(&work[1], other, named(subject, "-work"), "q"), "queue");
    must(natsConnection_Flush(one), "flush");
    must(natsConnection_Flush(other), "flush");
    for (int i = 0; i < 20; i++) must(natsConnection_PublishString(one, named(subject, "-work"), "x"), "publish");
    must(natsConnection_Flush(one), "flush");
    must(natsConnection_Flush(other), "flush");
    uint64_t worked[2] = {0, 0};
    for (int tries = 0; worked[0] + worked[1] < 20 && tries < LONG_MS / 10; tries++) {
        for (int i = 0; i < 2; i++) must(natsSubscription_QueuedMsgs(work[i], &worked[i]), "queued");
        nats_Sleep(10);
    }
    printf("queue %d\n", (int)(worked[0] + worked[1]));
    for (int i = 0; i < 2; i++) must(natsSubscription_Unsubscribe(work[i]), "unsubscribe");

    must(natsConnection_Subscribe(&service, other, named(subject, "-service"), on_request, NULL), "subscribe");
    must(natsConnection_Flush(other), "flush");
    must(natsConnection_RequestString(&message, one, named(subject, "-service"), "ask", LONG_MS), "request");
    printf("request %.*s\n", natsMsg_GetDataLength(message), natsMsg_GetData(message));
    natsMsg_Destroy(message);
    natsStatus nobody = natsConnection_RequestString(&message, one, named(subject, "-nobody"), "ask", LONG_MS);
    printf("no responders %s\n", nobody == NATS_NO_RESPONDERS ? "503" : natsStatus_GetText(nobody));

    must(natsConnection_SubscribeSync(&kept, one, named(subject, "-headers")), "subscribe");
    must(natsMsg_Create(&message, named(subject, "-headers"), NULL, "x", 1), "message");
    must(natsMsgHeader_Add(message, "Color", "blue"), "header");
    must(natsMsgHeader_Add(message, "Color", "red"), "header");
    must(natsConnection_PublishMsg(one, message), "publish");
    natsMsg_Destroy(message);
    must(natsSubscription_NextMsg(&message, kept, LONG_MS), "next message");
    const char **values = NULL;
    int found = 0;
    must(natsMsgHeader_Values(message, "Color", &values, &found), "values");
    printf("headers");
    for (int i = 0; i < found; i++) printf(" %s", values[i]);
    printf("\n");
    free((void *)values);
    natsMsg_Destroy(message);

    jsCtx *stream = NULL;
    jsOptions patient;
    jsOptions_Init(&patient);
    patient.Wait = LONG_MS;
    must(natsConnection_JetStream(&stream, one, &patient), "JetStream");
    jsPubAck *first = NULL, *again = NULL, *second = NULL;
    jsPubOptions publishing;
    jsPubOptions_Init(&publishing);
    publishing.MaxWait = LONG_MS;
    publishing.MsgId = named(logged, "-1");
    must(js_Publish(&first, stream, logged, "a", 1, &publishing, NULL), "publish to the stream");
    must(js_Publish(&again, stream, logged, "b", 1, &publishing, NULL), "publish to the stream");
    publishing.MsgId = named(logged, "-2");
    must(js_Publish(&second, stream, logged, "c", 1, &publishing, NULL), "publish to the stream");
    printf("deduplication %s %s %s\n", first->Duplicate ? "true" : "false", again->Duplicate ? "true" : "false",
           again->Sequence == first->Sequence ? "true" : "false");
    jsPubAck_Destroy(first);
    jsPubAck_Destroy(again);
    jsPubAck_Destroy(second);

    natsSubscription *ordered = NULL, *pull = NULL;
    jsSubOptions subscribing;
    jsSubOptions_Init(&subscribing);
    subscribing.Ordered = true;
    must(js_SubscribeSync(&ordered, stream, logged, NULL, &subscribing, NULL), "ordered consumer");
    printf("ordered");
    print_next(ordered, 2);
    jsSubOptions_Init(&subscribing);
    subscribing.Stream = "ORDERCAST";
    must(js_PullSubscribe(&pull, stream, logged, "", NULL, &subscribing, NULL), "pull consumer");
    natsMsgList list;
    must(natsSubscription_Fetch(&list, pull, 2, LONG_MS, NULL), "fetch");
    printf("pull");
    for (int i = 0; i < list.Count; i++) {
        printf(" %.*s", natsMsg_GetDataLength(list.Msgs[i]), natsMsg_GetData(list.Msgs[i]));
        must(natsMsg_Ack(list.Msgs[i], NULL), "acknowledge");
    }
    printf("\n");
    natsMsgList_Destroy(&list);
    must(natsSubscription_Unsubscribe(pull), "unsubscribe");
    must(natsSubscription_Unsubscribe(ordered), "unsubscribe");

    must(natsConnection_SubscribeSync(&back, one, named(subject, "-back")), "subscribe");
    must(natsConnection_Flush(one), "flush");
    printf("kill me\n");
    printf("reconnect");
    print_next(back, 1);
    must(natsSubscription_Unsubscribe(kept), "unsubscribe");
    must(natsSubscription_Unsubscribe(back), "unsubscribe");
    must(natsConnection_Drain(one), "drain");
    for (int tries = 0; natsConnection_Status(one) != NATS_CONN_STATUS_CLOSED && tries < LONG_MS / 10; tries++) nats_Sleep(10);
    printf("drain %s\n", natsConnection_Status(one) == NATS_CONN_STATUS_CLOSED ? "true" : "false");

    jsCtx_Destroy(stream);
    natsSubscription *used[] = {all, some, work[0], work[1], service, kept, back, ordered, pull};
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) natsSubscription_Destroy(used[i]);
    natsConnection_Destroy(one);
    natsConnection_Destroy(other);
    nats_Close();
    return 0;
}
