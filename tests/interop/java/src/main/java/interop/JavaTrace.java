package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Reads message traces as mqadmin's queryMsgTraceById does. */
final class JavaTrace {
    private JavaTrace() {}

    /** Return the records about the message {@code msgId}. */
    static JSONArray read(JSONObject command) throws Exception {
        String id = command.getString("msgId");
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(command.getString("nameserver"));
        admin.setMqClientApiTimeout(30_000); // 3 s are too few for a cold JVM on a busy machine
        admin.setInstanceName(JavaClient.instanceName(command));
        admin.start();
        JSONArray answer = new JSONArray();
        try {
            for (MessageExt message : admin.queryMessage(
                            "RMQ_SYS_TRACE_TOPIC", id, 64, 0, Long.MAX_VALUE)
                    .getMessageList()) {
                String data = new String(message.getBody(), StandardCharsets.UTF_8);
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(data)) {
                    TraceBean bean = context.getTraceBeans().get(0);
                    if (id.equals(bean.getMsgId())) {
                        answer.add(describe(context, bean));
                    }
                }
            }
        } finally {
            JavaClient.closeLater(admin::shutdown);
        }
        return answer;
    }

    private static JSONObject describe(TraceContext context, TraceBean bean) {
        JSONObject record = new JSONObject();
        record.put("type", context.getTraceType().name());
        record.put("group", context.getGroupName());
        record.put("success", context.isSuccess());
        record.put("contextCode", context.getContextCode());
        record.put("topic", bean.getTopic());
        record.put("tags", bean.getTags());
        record.put("keys", bean.getKeys());
        record.put("storeHost", bean.getStoreHost());
        record.put("bodyLength", bean.getBodyLength());
        record.put("retryTimes", bean.getRetryTimes());
        record.put("offsetMsgId", bean.getOffsetMsgId());
        record.put("kind", bean.getMsgType() == null ? null : bean.getMsgType().name());
        record.put("state", bean.getTransactionState() == null
                ? null : bean.getTransactionState().name());
        return record;
    }
}
