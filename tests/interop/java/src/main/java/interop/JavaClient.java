package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The official Java client, told what to do line by line.
 *
 * <p>Standard input carries one JSON object per line: {@code id}, {@code op}, {@code nameserver} and
 * what the operation needs. Each is answered on standard output by one line with the same {@code id}
 * and either {@code result} or {@code error}. Operations run side by side, each with clients of its
 * own, so that one JVM serves a whole test session. Ends with its standard input.
 */
public final class JavaClient {
    private interface Operation {
        Object run(JSONObject command) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = Map.ofEntries(
            Map.entry("send", JavaProducer::send),
            Map.entry("steady", JavaSteady::begin),
            Map.entry("steadyTaken", JavaSteady::taken),
            Map.entry("steadyHalt", JavaSteady::halt),
            Map.entry("consume", JavaPushConsumer::consume),
            Map.entry("fail", JavaGroups::fail),
            Map.entry("inOrder", JavaGroups::inOrder),
            Map.entry("assigned", JavaMembers::assigned),
            Map.entry("leave", JavaMembers::leave),
            Map.entry("pop", JavaPopConsumer::consume),
            Map.entry("pull", JavaPullConsumer::pull),
            Map.entry("litePull", JavaPullConsumer::litePull),
            Map.entry("query", JavaAdmin::query),
            Map.entry("message", JavaAdmin::message),
            Map.entry("createTopic", JavaAdmin::createTopic),
            Map.entry("deleteTopic", JavaAdmin::deleteTopic),
            Map.entry("topics", JavaAdmin::topics),
            Map.entry("cluster", JavaAdmin::cluster),
            Map.entry("haStatus", JavaAdmin::haStatus),
            Map.entry("epochs", JavaAdmin::epochs),
            Map.entry("sqlVerdicts", JavaFilter::verdicts),
            Map.entry("offsets", JavaAdmin::offsets),
            Map.entry("request", JavaRequestReply::request),
            Map.entry("reply", JavaRequestReply::reply),
            Map.entry("trace", JavaTrace::read),
            Map.entry("transactions", JavaTransactions::run),
            Map.entry("brokerConfig", JavaAdmin::brokerConfig),
            Map.entry("mqadmin", JavaAdmin::mqadmin),
            Map.entry("brokerStats", JavaAdmin::brokerStats));

    private JavaClient() {}

    public static void main(String[] args) throws Exception {
        // The answers own standard output; what libraries print there goes to standard error.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject command = JSON.parseObject(line);
            Thread thread = new Thread(() -> answer(answers, command));
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    private static void answer(PrintStream answers, JSONObject command) {
        JSONObject answer = new JSONObject();
        answer.put("id", command.get("id"));
        try {
            Operation operation = OPERATIONS.get(command.getString("op"));
            if (operation == null) {
                throw new IllegalArgumentException("unknown operation " + command.get("op"));
            }
            answer.put("result", operation.run(command));
        } catch (Throwable e) {
            e.printStackTrace();
            answer.put("error", e.toString());
        }
        byte[] line = (answer.toJSONString() + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (answers) {
            answers.write(line, 0, line.length);
            answers.flush();
        }
    }

    /** Close a client that has nothing to hand over; that takes it up to three seconds. */
    static void closeLater(Runnable shutdown) {
        Thread thread = new Thread(shutdown);
        thread.setDaemon(true);
        thread.start();
    }

    /** Return what signs requests, null for a command without accessKey. */
    static RPCHook hook(JSONObject command) {
        String user = command.getString("accessKey");
        if (user == null) {
            return null;
        }
        return new AclClientRPCHook(
                new SessionCredentials(user, command.getString("secretKey")));
    }

    /** Return a name that keeps the clients of one command apart from all others in this JVM. */
    static String instanceName(JSONObject command) {
        return "interop-" + ProcessHandle.current().pid() + "-" + command.get("id");
    }

    static int intOr(JSONObject command, String key, int fallback) {
        return command.containsKey(key) ? command.getIntValue(key) : fallback;
    }

    static String stringOr(JSONObject command, String key, String fallback) {
        return command.containsKey(key) ? command.getString(key) : fallback;
    }
}
